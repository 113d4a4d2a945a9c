"""The run folder: one record per stage, raw samples, logs and a manifest, all written whole or not at all.

``runs/<utc>-<name>/`` holds ``recipe.yaml``, ``inventory.json``, ``plan.json`` … ``report.html``, ``samples/``,
``logs/`` and ``manifest.json`` with the sha256 of every file. Read :class:`RunFolder`.

Does not do: deciding what to write; stages return records and the journey saves them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from freehold.errors import InputError, PrerequisiteError
from freehold.records.base import Record, decode, encode, schema_name, sha256_hex

__all__ = ["MANIFEST", "RunFolder", "read_limited", "run_name", "write_whole"]

MANIFEST = "manifest.json"
_LOCK = ".lock"
R = TypeVar("R", bound=Record)


def run_name(name: str, moment: datetime) -> str:
    """Folder name of a run: UTC time and a file-safe form of the recipe's name."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    return f"{moment:%Y%m%dT%H%M%SZ}-{safe[:60]}"


def read_limited(path: Path, limit_bytes: int) -> bytes:
    """Read a file that somebody named and that should be short; one without an end fills no memory.

    Raises:
        OSError: It cannot be read, or is longer.
    """
    with path.open("rb") as source:
        data = source.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is longer than {limit_bytes:,} bytes", str(path))
    return data


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never half of it.

    Raises:
        PrerequisiteError: The disk is full, the folder is read-only or missing.
    """
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        fixes = {
            errno.ENOSPC: "free some space, or choose another folder with `--run-dir`",
            errno.EDQUOT: "free some of your quota, or choose another folder with `--run-dir`",
        }
        raise PrerequisiteError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            fix=fixes.get(error.errno or 0, "choose a folder you may write with `--run-dir`"),
        ) from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


class RunFolder:
    """One run on disk.

    Args:
        path: The folder; ``logs`` and ``samples`` are made inside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make a new run folder.

        Raises:
            InputError: It exists and holds something.
            PrerequisiteError: It cannot be made.
        """
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise InputError(
                    f"{path} exists and is not an empty folder",
                    why="a run never overwrites another run",
                    fix="choose another folder with `--run-dir`, or delete this one",
                )
            for folder in (path, path / "logs", path / "samples"):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot make the run folder {path}",
                why=error.strerror or str(error),
                fix="choose a folder you may write with `--run-dir`",
            ) from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder.

        Raises:
            InputError: It is no run folder.
            PrerequisiteError: It cannot be read.
        """
        try:
            is_run = (path / MANIFEST).is_file() or any(path.glob("*.json"))
        except OSError as error:
            raise PrerequisiteError(
                f"cannot read {path}",
                why=error.strerror or str(error),
                fix="name a folder that you may read",
            ) from None
        if not is_run:
            raise InputError(
                f"{path} is no run folder",
                why=f"it holds neither {MANIFEST} nor any record",
                fix="name a folder that `freehold up` made, such as one under `runs/`",
            )
        return cls(path)

    @property
    def logs(self) -> Path:
        """Folder of logs."""
        return self.path / "logs"

    @property
    def samples(self) -> Path:
        """Folder of raw samples."""
        return self.path / "samples"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one writer; a second one is refused at once.

        Raises:
            PrerequisiteError: Another process holds it.
        """
        try:
            handle = (self.path / _LOCK).open("w")
        except OSError as error:
            raise PrerequisiteError(
                f"cannot write in {self.path}",
                why=error.strerror or str(error),
                fix="choose a folder you may write with `--run-dir`",
            ) from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PrerequisiteError(
                    f"{self.path} is in use by another freehold",
                    why="two writers would overwrite each other's records",
                    fix="wait for it to end, or choose another folder with `--run-dir`",
                ) from None
            yield

    def discard_if_unused(self) -> None:
        """Remove a folder in which nothing was written, so that the same command can use it again."""
        with suppress(OSError):
            if any(entry.is_file() and entry.name != _LOCK for entry in self.path.rglob("*")):
                return
            (self.path / _LOCK).unlink(missing_ok=True)
            for folder in (self.logs, self.samples, self.path):
                folder.rmdir()

    @staticmethod
    def file_name(cls: type[Record]) -> str:
        """The file a record type is saved under: ``freehold.plan/1`` goes to ``plan.json``."""
        return schema_name(cls).removeprefix("freehold.").split("/")[0] + ".json"

    def save(self, value: Record) -> str:
        """Write a record whole and bring the manifest up to date; returns its sha256."""
        data = encode(value)
        self.write(self.file_name(type(value)), data)
        return sha256_hex(data)

    def write(self, name: str, data: bytes) -> None:
        """Write any file of the run whole and bring the manifest up to date."""
        write_whole(self.path / name, data)
        self.update_manifest(written=(name,))

    def load(self, cls: type[R]) -> R:
        """Read a stage's record.

        Raises:
            InputError: The stage has not run, or its record cannot be read.
        """
        path = self.path / self.file_name(cls)
        if not path.is_file():
            raise InputError(
                f"{path} does not exist",
                why=f"the stage that writes it has not run in {self.path}",
                fix="run that stage first, or name another run folder",
            )
        return decode(cls, path.read_bytes(), name=str(path))

    def find(self, cls: type[R]) -> R | None:
        """Read a stage's record, None when the stage has not run."""
        return self.load(cls) if (self.path / self.file_name(cls)).is_file() else None

    def sha256(self, cls: type[Record]) -> str:
        """Hash of a saved record's bytes."""
        return sha256_hex((self.path / self.file_name(cls)).read_bytes())

    def set_aside(self, types: Iterable[type[Record]], moment: datetime) -> None:
        """Move records that no longer hold into ``superseded/<utc>/``; nothing is deleted.

        Raises:
            PrerequisiteError: They cannot be moved.
        """
        paths = [self.path / self.file_name(cls) for cls in types]
        target = self.path / "superseded" / f"{moment:%Y%m%dT%H%M%S%fZ}"
        try:
            for path in paths:
                if path.is_file():
                    target.mkdir(parents=True, exist_ok=True)
                    os.replace(path, target / path.name)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot set old records of {self.path} aside",
                why=error.strerror or str(error),
                fix="check the folder's permissions and the disk's free space",
            ) from None
        self.update_manifest(removed=[path.name for path in paths])

    def write_manifest(self) -> None:
        """Write ``manifest.json`` anew: sha256 and size of every file of the run as it is now."""
        self._write_entries({name: _entry(path) for name, path in self._files()})

    def update_manifest(self, *, written: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Enter files that were written or are new, and what grows by nature: logs and process records.

        Every other entry stays as it is. Hashing everything anew would declare files correct that somebody changed
        after they were written. A manifest that cannot be read, or is gone from a run that has files, is left alone,
        since that is itself a finding.
        """
        path = self.path / MANIFEST
        entries: dict[str, Any] = {}
        fresh = set(written)
        if not path.exists() and any("/" not in name and name not in fresh for name, _ in self._files()):
            return
        if path.is_file():
            try:
                entries = dict(json.loads(path.read_bytes())["files"])
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                return
        for name in removed:
            entries.pop(name, None)
        for name, file in self._files():
            if name not in entries or name in fresh or name.startswith(("logs/", "process-")):
                entries[name] = _entry(file)
        self._write_entries(entries)

    def _files(self) -> list[tuple[str, Path]]:
        files = ((p.relative_to(self.path).as_posix(), p) for p in self.path.rglob("*") if p.is_file())
        return sorted((name, p) for name, p in files if name != MANIFEST and not p.name.startswith("."))

    def _write_entries(self, entries: Mapping[str, Any]) -> None:
        document = {"schema": "freehold.manifest/1", "files": dict(sorted(entries.items()))}
        write_whole(self.path / MANIFEST, (json.dumps(document, indent=1) + "\n").encode())

    def check_manifest(self) -> list[str]:
        """What differs from the manifest: one sentence per missing or changed file."""
        path = self.path / MANIFEST
        if not path.is_file():
            return [f"{MANIFEST} is missing"]
        try:
            recorded = {name: str(entry["sha256"]) for name, entry in json.loads(path.read_bytes())["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return [f"{MANIFEST} cannot be read"]
        problems = []
        for name, sha256 in recorded.items():
            target = self.path / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                problems.append(f"{name} is outside the run folder")
                continue
            try:
                if not target.is_file():
                    problems.append(f"{name} is missing")
                elif sha256_hex(target.read_bytes()) != sha256:
                    problems.append(f"{name} was changed after it was written")
            except OSError as error:
                problems.append(f"{name[:200]} cannot be read: {error.strerror or error}")
        return problems


def _entry(path: Path) -> dict[str, str | int]:
    data = path.read_bytes()
    return {"sha256": sha256_hex(data), "bytes": len(data)}
