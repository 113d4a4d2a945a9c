"""The shape of the repository: layout, imports, docstrings, exports, facts, words and generated documents."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from freehold import errors

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "freehold"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

LEVELS = [
    {"cli"},
    {"journey"},
    {"report"},
    {"bench"},
    {"verify"},
    {"launch"},
    {"preflight"},
    {"plan"},
    {"engines"},
    {"client", "models", "hardware", "cluster", "recipes"},
    {"world"},
    {"records"},
    {"evidence"},
    {"progress", "secret", "units", "errors"},
]
"""Who may import whom: a name may import those of later lines, and of its own line only in the last."""


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every_module(check: Callable[[Path], None]) -> Callable[[], None]:
    """A test that puts a check to all modules and names every one that fails it."""

    def test() -> None:
        found = []
        for path in MODULES:
            try:
                check(path)
            except AssertionError as error:
                found.append(f"{name_of(path)}: {str(error).splitlines()[0] if str(error) else 'see the check'}")
        assert not found, "\n".join(found)

    test.__name__ = test.__qualname__ = check.__name__
    return test


@every_module
def test_modules_stay_readable_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) < MAX_LINES


@every_module
def test_module_docstrings_say_what_and_what_not(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring, "a module docstring says what question the module answers"
    limits = [line for line in docstring.splitlines() if line.startswith("Does not do: ")]
    assert len(limits) == 1, "one line says what is left to others"
    assert docstring.split("\n\n")[0].rstrip().endswith((".", "?", ":")), "the first paragraph is a whole sentence"


def _level(name: str) -> int:
    return next(i for i, level in enumerate(LEVELS) if name in level)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            is_root = node.module == "freehold"
            yield from ([f"freehold.{alias.name}" for alias in node.names] if is_root else [node.module])


@every_module
def test_imports_point_down(path: Path) -> None:
    names = [name.split(".")[1] for name in _imported(path) if name.startswith("freehold.")]
    targets = {name for name in names if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}
    if path == PACKAGE / "__init__.py":
        assert not targets, "the package itself imports nothing"
        return
    own = module_name(path).split(".")[1]
    for target in targets - {own}:
        here, there = _level(own), _level(target)
        is_base = here == there == len(LEVELS) - 1
        assert there > here or is_base, f"{own} must not import {target}"


def test_every_package_has_its_level() -> None:
    names = {p.name.removesuffix(".py") for p in PACKAGE.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert names - {"data", "__init__", "__pycache__"} <= set().union(*LEVELS)


def test_only_engines_compares_the_name_of_an_engine() -> None:
    names = {p.name for p in (PACKAGE / "engines").iterdir() if p.is_dir() and not p.name.startswith("_")}
    spelled = {name.replace("_", mark) for name in names for mark in ("_", ".", "-")} - {"openai"}
    for path in MODULES:
        if path.is_relative_to(PACKAGE / "engines"):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Compare):
                constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not constants & spelled, f"{name_of(path)}:{node.lineno} compares an engine's name"


@every_module
def test_all_is_there_and_true(path: Path) -> None:
    tree = tree_of(path)
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    module = importlib.import_module(module_name(path))
    exported = getattr(module, "__all__", None)
    if exported is None:
        assert path.name == "__init__.py", "a module says what is public in __all__"
        assert not {name for name in defined if not name.startswith("_")}
        return
    assert list(exported) == sorted(exported, key=_all_order), "__all__ is sorted"
    assert len(set(exported)) == len(exported)
    for name in exported:
        assert hasattr(module, name), f"__all__ names {name}, which does not exist"
    documented = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    assert documented <= set(exported), f"public and not in __all__: {sorted(documented - set(exported))}"


def _all_order(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: constants, then classes, then everything else."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@every_module
def test_the_library_does_not_print_exit_or_read_the_environment(path: Path) -> None:
    is_program = '__name__ == "__main__"' in path.read_text()  # run as a process of its own
    if path.is_relative_to(PACKAGE / "cli") or path == PACKAGE / "world.py" or is_program:
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"print", "exit", "quit", "input"}, f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = f"{node.value.id}.{node.attr}"
            assert used not in {"sys.exit", "os._exit", "os.environ", "os.getenv"}, f"line {node.lineno}: {used}"


@every_module
def test_no_error_is_swallowed(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            kinds = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"Exception"}
            does_nothing = all(isinstance(statement, ast.Pass) for statement in node.body)
            assert not (does_nothing and kinds & {"Exception", "BaseException"}), f"line {node.lineno}"


@every_module
def test_names_carry_units_and_only_ours(path: Path) -> None:
    banned = re.compile(r"\w_(gb|mb|kb|gib|mib|ms|time|mem|tps)$")
    for node in ast.walk(tree_of(path)):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        for name in names:
            assert not banned.search(name), f"line {node.lineno}: {name}; bytes, seconds and tokens are the units here"


ERROR_NAMES = {name for name in errors.__all__ if name != "Interrupted"}


@every_module
def test_error_texts_are_plain_clauses(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERROR_NAMES):
            continue
        texts = [*node.args[:1], *(k.value for k in node.keywords if k.arg in {"why", "fix"})]
        for text in texts:
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            first, last = parts[0], parts[-1]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value:
                assert not re.match(r"[A-Z][a-z]+ ", first.value) or first.value.split()[0] in PROPER_NAMES, (
                    f"line {node.lineno}: {first.value!r} begins with a capital"
                )
            if isinstance(last, ast.Constant) and isinstance(last.value, str) and last.value:
                assert not last.value.rstrip().endswith(("!", ".")) or last.value.endswith("…"), (
                    f"line {node.lineno}: {last.value!r} ends like a sentence"
                )


PROPER_NAMES = {"Ctrl-C", "Python", "Linux", "Debian", "Chromium", "Hugging", "Freehold"}


def test_nothing_without_a_name_of_its_own() -> None:
    nameless = {"utils", "common", "help" + "ers", "core", "misc"}
    assert not [name_of(p) for p in PACKAGE.rglob("*") if p.stem in nameless]


def test_test_modules_have_names_of_their_own() -> None:
    names = [p.name for p in (REPOSITORY / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


# --- facts ----------------------------------------------------------------------------------------------------------


def _tables(value: object, where: str, sourced: bool) -> Iterator[tuple[str, dict[str, object], bool]]:
    if isinstance(value, dict):
        is_sourced = sourced or {"source", "checked"} <= set(value)
        yield where, value, is_sourced
        for key, item in value.items():
            yield from _tables(item, f"{where}.{key}", is_sourced)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _tables(item, f"{where}[{i}]", sourced)


@pytest.mark.parametrize("path", sorted((PACKAGE / "data").rglob("*.toml")), ids=name_of)
def test_every_fact_has_a_source_and_a_date(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    for where, table, is_sourced in _tables(document, path.stem, False):
        has_facts = any(
            not isinstance(v, dict | list) or (isinstance(v, list) and v and not isinstance(v[0], dict))
            for v in table.values()
        )
        if has_facts:
            assert is_sourced, f"{where} states facts, and neither it nor a table around it has `source` and `checked`"
        if "checked" in table:
            checked = table["checked"]
            assert isinstance(checked, date) or re.fullmatch(r"\d{4}-\d\d-\d\d", str(checked)), where
        if "source" in table:
            assert str(table["source"]).strip(), where


# --- words and addresses --------------------------------------------------------------------------------------------


def _texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [p for p in REPOSITORY.rglob("*") if not any(part.startswith(".") for part in p.parts)]
    return [p for p in paths if p.is_file() and "tests/data/" not in p.as_posix()]


def _lines() -> Iterator[tuple[str, str]]:
    for path in _texts():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{name_of(path)}:{number}", line


def test_no_path_of_the_machine_it_was_written_on() -> None:
    places = re.compile("|".join(rf"(?<![\w.-])/{name}/" for name in ("work", "root", "tmp/" + "w", "home/\\w+")))
    assert not [where for where, line in _lines() if places.search(line)]


def test_no_address_of_a_package_index() -> None:
    hosts = re.compile(
        "|".join(
            (r"pypi\." + "org", r"pytho" + r"nhosted\.org", r"registry\.npm" + r"js\.org", r"deb\.debi" + r"an\.org")
        )
    )
    assert not [where for where, line in _lines() if hosts.search(line)]


def test_requirements_record_hashes_and_no_address() -> None:
    for path in (REPOSITORY / "requirements").glob("*.txt"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if re.search(r"^\s*-(i|f)|--(extra-)?index|--find-links|://", line)]
        pinned = [i for i, line in enumerate(lines) if re.match(r"[A-Za-z0-9]", line)]
        assert pinned
        for i in pinned:
            assert re.match(r"[a-z0-9._-]+==\S+( ;.*)? \\$", lines[i]), f"{path.name}: {lines[i]}"
            assert "--hash=sha256:" in lines[i + 1]


def test_the_words_are_plain() -> None:
    words = ("iss" + "ues?", "hel" + "pers?", "(?<!user-)a" + "gents?", "C" + "EO", "suba" + "gents?")
    pattern = re.compile("|".join(rf"\b{word}\b" for word in words), flags=re.IGNORECASE)
    assert not [
        f"{where}: {line.strip()}"
        for where, line in _lines()
        if pattern.search(line) and "freehold/data/" not in where and not where.startswith("LICENSE")
    ]


DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "benchmarks").rglob("*.md"),
]


# --- generated documents --------------------------------------------------------------------------------------------

GENERATED: dict[Path, str] = load_tool("generate_docs").generate()


@pytest.mark.parametrize("path", GENERATED, ids=name_of)
def test_generated_documents_are_up_to_date(path: Path) -> None:
    found = path.read_text().splitlines() if path.is_file() else []
    wanted = GENERATED[path].splitlines()
    differing = [line for line in difflib.ndiff(found, wanted) if line[:1] in "+-"]
    assert not differing[:6], "run `make docs`"


def test_every_field_of_a_record_says_what_it_means() -> None:
    lines = (REPOSITORY / "docs" / "reference" / "schemas.md").read_text().splitlines()
    assert not [line for line in lines if line.startswith("| `") and line.endswith("|  |")]


def test_every_stamped_document_is_described() -> None:
    described = (REPOSITORY / "docs" / "reference" / "schemas.md").read_text()
    for path in MODULES:
        for stamp in re.findall(r"\"(freehold\.[a-z_]+/\d+)\"", path.read_text()):
            assert stamp in described, f"{name_of(path)} writes {stamp}, which docs/reference/schemas.md does not know"


def test_links_between_documents_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{name_of(path)} points at {target}"


def test_every_benchmark_is_listed() -> None:
    readme = (REPOSITORY / "benchmarks" / "README.md").read_text()
    scripts = [path.name for path in (REPOSITORY / "benchmarks").glob("*.py")]
    assert not [name for name in scripts if f"`{name}`" not in readme]


def test_the_readme_gives_each_dependency_a_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    readme = (REPOSITORY / "README.md").read_text()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["llamacpp"]]
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9-]+", requirement)
        assert name is not None
        assert re.search(rf"^\| `{name[0]}` \| \S", readme, flags=re.MULTILINE), f"no reason for {name[0]}"
