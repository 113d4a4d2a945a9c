"""Writes every document that is made from the code, or says which of them are out of date.

Made are: ``docs/layout.md`` from module docstrings, ``docs/reference/cli.md`` from ``--help``,
``docs/reference/schemas.md`` and ``src/freehold/data/schemas/*.json`` from the record types, and the parts of
``README.md`` between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` from the captures under ``docs/captures``.

    python tools/generate_docs.py            write them
    python tools/generate_docs.py --check    exit 1 and name the ones that differ
    python tools/generate_docs.py --capture  run `make up` for real and save what it printed
    python tools/generate_docs.py --lock     note the form of every schema that no released version has yet

Does not do: prose; guides, concepts and decisions are written by hand.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "freehold"
SCHEMAS = PACKAGE / "data" / "schemas"
CAPTURES = REPOSITORY / "docs" / "captures"
LOCK = REPOSITORY / "tests" / "data" / "records" / "released.toml"
LOCK_NOTICE = """\
# The form of every record schema, by the version of freehold that first has it. A schema of a released version never
# changes: a new form gets a new number. `python tools/generate_docs.py --lock` renews those not released yet.
"""
HELP_WIDTH = 96
NOTICE = "<!-- Made by tools/generate_docs.py: change the code, then run `make docs`. -->\n"


def first_sentence(text: str) -> str:
    """The first sentence of a docstring as Markdown, without its final stop."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return as_markdown(re.split(r"(?<=[.!?])\s", paragraph)[0].rstrip("."))


def as_markdown(text: str) -> str:
    """Docstring markup as Markdown: ``code`` and references become `code`."""
    text = re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def summarise(path: Path) -> str:
    """What a module's docstring says first."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    if not docstring:
        raise SystemExit(f"error: {path} has no docstring, and the layout is made of them")
    return first_sentence(docstring)


def make_layout() -> str:
    """The tree of the package, one line per package and module."""
    lines = []
    for path in sorted(PACKAGE.glob("*.py")):
        if path.name != "__init__.py":
            lines.append((0, path.name, summarise(path)))
    for package in sorted(p.parent for p in PACKAGE.rglob("__init__.py") if p.parent != PACKAGE):
        depth = len(package.relative_to(PACKAGE).parts) - 1
        lines.append((depth, package.name + "/", summarise(package / "__init__.py")))
        lines += [
            (depth + 1, path.name, summarise(path))
            for path in sorted(package.glob("*.py"))
            if path.name != "__init__.py"
        ]
    width = max(2 * depth + len(name) for depth, name, _ in lines) + 2
    tree = "\n".join(f"{('  ' * depth + name).ljust(width)}{text}" for depth, name, text in lines)
    return (
        f"# Layout\n\n{NOTICE}\n"
        "Packages follow the operator's journey. Imports point down only, and a test holds them to it:\n"
        "cli → journey → report → bench → verify → launch → preflight → plan → engines → client, models, hardware,\n"
        "cluster, recipes → world → records → evidence → progress, secret, units, errors.\n\n"
        f"```\nsrc/freehold/\n{tree}\n```\n\n"
        "Facts about the outside (engine flags, quantization blocks, tensor roles) are data with source and date\n"
        "under `src/freehold/data/`. `tests/` mirrors `src/`, `benchmarks/` holds definitions and recorded results,\n"
        "`tools/` what makes references and documents.\n"
    )


def make_cli_reference() -> str:
    """The help of every command."""
    from freehold.cli.main import BROKEN_PIPE_EXIT, BugError, build_group, load_command

    def help_of(command: Any, name: str) -> str:
        with command.make_context(name, [], resilient_parsing=True, terminal_width=HELP_WIDTH) as context:
            return f"```\n{command.get_help(context).rstrip()}\n```\n"

    group = build_group()
    parts = [
        f"# Commands\n\n{NOTICE}\n",
        "Data goes to stdout, talk to stderr. With `--json`, stdout holds one JSON document and nothing else; an\n"
        "error is then one line of JSON (`freehold.error/1`), the last line on stderr. Colour only repeats what words\n"
        "say, and `NO_COLOR` turns it off.\n\n"
        "| exit code | meaning |\n| --- | --- |\n"
        "| 0 | done |\n"
        "| 1 | the answer is no: it does not fit, a check failed, the output differs |\n"
        "| 2 | misuse: arguments, recipes or files that make no sense |\n"
        "| 3 | something on the machine or the network is missing |\n"
        f"| {BugError.exit_code} | a bug in freehold |\n"
        "| 130 | interrupted by Ctrl-C, SIGTERM or a lost terminal; what was measured is kept |\n"
        f"| {BROKEN_PIPE_EXIT} | whoever read the output stopped reading |\n\n",
        f"## freehold\n\n{help_of(group, 'freehold')}",
    ]
    parts += [f"\n## freehold {name}\n\n{help_of(load_command(name), f'freehold {name}')}" for name in group.commands]
    return "".join(parts)


def record_types() -> dict[str, type[Any]]:
    """Every record type that is stamped with a schema, by schema name."""
    import freehold.records

    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(freehold.records.__path__):
        loaded = importlib.import_module(f"freehold.records.{module.name}")
        for value in vars(loaded).values():
            if isinstance(value, type) and value.__module__ == loaded.__name__:
                stamp = getattr(value, "__dataclass_fields__", {}).get("schema")
                if stamp is not None:
                    found[str(stamp.default)] = value
    return dict(sorted(found.items()))


def schema_file_name(schema: str) -> str:
    """``freehold.plan/1`` is published as ``plan-1.json``."""
    name, version = schema.removeprefix("freehold.").split("/")
    return f"{name}-{version}.json"


def make_json_schema(record_type: type[Any]) -> str:
    """The JSON Schema of a record type."""
    from freehold.records.base import json_schema

    return json.dumps(json_schema(record_type), indent=1, ensure_ascii=False) + "\n"


def schema_fingerprint(record_type: type[Any]) -> str:
    """Hash of a schema's form; descriptions may be reworded, fields and types may not change."""

    def form(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: form(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
        return [form(item) for item in node] if isinstance(node, list) else node

    plain = json.dumps(form(json.loads(make_json_schema(record_type))), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def lock_schemas() -> None:
    """Note every schema's form under the current version; those of versions in the changelog are left alone."""
    from freehold import __version__

    released = set(re.findall(r"^## \[(\d\S*)\]", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE))
    known = tomllib.loads(LOCK.read_text()) if LOCK.is_file() else {}
    lines = [LOCK_NOTICE]
    for schema, record_type in record_types().items():
        row = known.get(schema)
        if row is None or row["since"] not in released:
            row = {"since": __version__, "sha256": schema_fingerprint(record_type)}
        lines.append(f'\n["{schema}"]\nsince = "{row["since"]}"\nsha256 = "{row["sha256"]}"\n')
    LOCK.write_text("".join(lines))


def _argument_texts(part: type[Any]) -> dict[str, str]:
    """What the docstring says about each field."""
    texts: dict[str, str] = {}
    name = None
    for line in (inspect.getdoc(part) or "").partition("Args:")[2].splitlines():
        match = re.match(r" {4}(\w+): (.*)", line)
        if match:
            name = match[1]
            texts[name] = match[2]
        elif name and line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        elif line.strip():
            break
    return {name: as_markdown(text).replace("|", "\\|") for name, text in texts.items()}


def _field_table(part: type[Any]) -> str:
    texts = {"made_from": "sha256 of each record and file it was made from, by name.", **_argument_texts(part)}
    lines = ["| field | type | meaning |", "| --- | --- | --- |"]
    for f in fields(part):
        if f.name == "schema":
            continue
        is_optional = f.default is not MISSING or f.default_factory is not MISSING
        shown = str(f.type).replace("|", "\\|")
        default = "" if f.default in (MISSING, None, "", ()) else f" = {f.default}"
        lines.append(f"| `{f.name}`{'' if is_optional else ' *'} | `{shown}`{default} | {texts.get(f.name, '')} |")
    return "\n".join(lines) + "\n"


def _members(module_name: str) -> list[type[Any]]:
    loaded = importlib.import_module(module_name)
    found = (getattr(loaded, name) for name in loaded.__all__)
    return [value for value in found if isinstance(value, type) and value.__module__ == module_name]


def record_parts() -> list[type[Any]]:
    """Every type that is found inside records: evidence, verdicts, memory terms …"""
    import freehold.records

    modules = [
        "freehold.evidence",
        *(f"freehold.records.{m.name}" for m in pkgutil.iter_modules(freehold.records.__path__)),
    ]
    whole = set(record_types().values())
    found = (part for module in modules for part in _members(module))
    return [part for part in found if part not in whole and (is_dataclass(part) or issubclass(part, StrEnum))]


def make_schema_reference() -> str:
    """The fields of every record type."""
    sections = [
        f"# Records\n\n{NOTICE}\n"
        "Every stage leaves one record, saved as JSON in the run folder. Its first field names its schema and\n"
        "version. A field nobody knows is an error. Fields marked * are always there. The JSON Schemas are published\n"
        "under `src/freehold/data/schemas/`.\n\n"
        "Three stamped documents are no records: `freehold.manifest/1` (`manifest.json`: sha256 and size of every\n"
        "file of a run), `freehold.error/1` (an error under `--json`: `error`, `what`, `why`, `fix`, `exit_code`,\n"
        "`facts`) and `freehold.reference/1` (log-probabilities that another engine computed, see\n"
        "[verification](../concepts/verification.md)).\n"
    ]
    for schema, record_type in record_types().items():
        sections.append(f"## {schema}\n\n{first_sentence(record_type.__doc__ or '')}.\n\n{_field_table(record_type)}")
    sections.append("# Parts of records\n\nThe types that the tables above name.\n")
    for part in record_parts():
        head = f"## {part.__name__}\n\n{first_sentence(part.__doc__ or '')}.\n\n"
        if issubclass(part, StrEnum):
            sections.append(head + "One of: " + ", ".join(f"`{member.value}`" for member in part) + ".\n")
        else:
            sections.append(head + _field_table(part))
    return "\n".join(sections)


def make_readme(current: str) -> str:
    """The README with its marked parts replaced by the captures."""

    def replace(match: re.Match[str]) -> str:
        capture = CAPTURES / f"{match[1]}.txt"
        if not capture.is_file():
            return match[0]
        return f"<!-- begin {match[1]} -->\n```\n{capture.read_text().rstrip()}\n```\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", replace, current, flags=re.DOTALL)


def generate() -> dict[Path, str]:
    """Every generated file with the content it should have."""
    documents = {
        REPOSITORY / "docs" / "layout.md": make_layout(),
        REPOSITORY / "docs" / "reference" / "cli.md": make_cli_reference(),
        REPOSITORY / "docs" / "reference" / "schemas.md": make_schema_reference(),
        REPOSITORY / "README.md": make_readme((REPOSITORY / "README.md").read_text()),
    }
    for schema, record_type in record_types().items():
        documents[SCHEMAS / schema_file_name(schema)] = make_json_schema(record_type)
    return documents


def capture_up() -> None:
    """Run `make up` for real and save what it printed, without the places of this machine."""
    subprocess.run(["make", "--no-print-directory", "install"], cwd=REPOSITORY, check=True)
    begun = time.monotonic()
    done = subprocess.run(
        ["make", "--no-print-directory", "up"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        check=False,
    )
    text = done.stdout.decode()
    if done.returncode != 0:
        raise SystemExit(f"error: `make up` ended with {done.returncode}\n{text}")
    text = text.replace(f"{REPOSITORY}/", "").replace(str(REPOSITORY), ".").replace(str(Path.home()), "~")
    CAPTURES.mkdir(parents=True, exist_ok=True)
    (CAPTURES / "up.txt").write_text(f"$ make up\n{text.rstrip()}\n")
    print(f"saved docs/captures/up.txt after {time.monotonic() - begun:.0f} s")


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something differs")
    parser.add_argument("--capture", action="store_true", help="first run `make up` and save its output")
    parser.add_argument("--lock", action="store_true", help="note the form of schemas that were not released yet")
    options = parser.parse_args()
    if options.lock:
        lock_schemas()
    if options.capture:
        capture_up()
    stale = []
    for path, content in generate().items():
        if path.is_file() and path.read_text() == content:
            continue
        stale.append(path.relative_to(REPOSITORY).as_posix())
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    known = {schema_file_name(schema) for schema in record_types()}
    for path in SCHEMAS.glob("*.json"):
        if path.name not in known:
            stale.append(f"{path.relative_to(REPOSITORY).as_posix()} (of no record type)")
    if options.check and stale:
        print("error: out of date: " + ", ".join(stale), file=sys.stderr)
        print("  why: they are made from the code, which has changed", file=sys.stderr)
        print("  try: `make docs`", file=sys.stderr)
        return 1
    print("\n".join(f"wrote {name}" for name in stale) or "everything is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
