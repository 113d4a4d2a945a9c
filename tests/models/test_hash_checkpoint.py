"""The hash that binds results to weights, and its cache."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from freehold.errors import CheckpointError, PrerequisiteError
from freehold.models.inventory import hash_checkpoint, read_inventory
from freehold.progress import Progress
from freehold.records.inventory import Inventory


@pytest.fixture
def two(made: ModuleType, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    made.write_safetensors_shards(folder, [made.Made(f"t{i}", (256, 1024 * (i + 1)), "F32") for i in range(2)], 2)
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def test_one_file_has_its_own_hash(made: ModuleType, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", [made.Made("a", (64,), "F32")], {"general.architecture": "llama"})
    hashed = hash_checkpoint(read_inventory(path), path)
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert hashed.checkpoint_sha256 == expected
    assert hashed.files[0].sha256 == expected
    assert replace(hashed, files=read_inventory(path).files, checkpoint_sha256=None) == read_inventory(path)


def test_several_files_have_the_hash_of_their_lines(two: Path) -> None:
    hashed = hash_checkpoint(read_inventory(two), two)
    digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in shards(two)]
    assert [f.sha256 for f in hashed.files] == digests
    lines = "".join(f"{d}  {p.stat().st_size}\n" for d, p in zip(digests, shards(two), strict=True))
    assert hashed.checkpoint_sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_progress_adds_up_to_all_bytes(two: Path) -> None:
    events: list[Progress] = []
    inventory = read_inventory(two)
    hash_checkpoint(inventory, two, listener=events.append)
    done = [e.done for e in events]
    assert done == sorted(done)  # type: ignore[type-var]
    assert done[-1] == inventory.file_bytes
    assert {(e.stage, e.total, e.unit) for e in events} == {("hash", inventory.file_bytes, "bytes")}


def hash_and_spy(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Inventory, list[str]]:
    """The result, and the names of the files that were really read."""
    from freehold.models import hashing

    real, opened = hashing.hash_file, []
    monkeypatch.setattr(hashing, "hash_file", lambda p, **k: opened.append(p.name) or real(p, **k))
    result = hash_checkpoint(read_inventory(folder), folder, cache_path=cache)
    monkeypatch.undo()
    return result, sorted(opened)


def test_what_was_hashed_once_is_remembered_until_it_changes(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "deep" / "hashes.json"
    names = [p.name for p in shards(two)]
    first, opened = hash_and_spy(two, cache, monkeypatch)
    assert opened == names
    assert hash_and_spy(two, cache, monkeypatch) == (first, [])
    with shards(two)[1].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    second, opened = hash_and_spy(two, cache, monkeypatch)
    assert opened == names[1:]
    assert second.files[0] == first.files[0]
    assert second.checkpoint_sha256 != first.checkpoint_sha256


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "other/1", "hashes": {}}', b"\xff"])
def test_a_damaged_cache_counts_as_empty(two: Path, tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "hashes.json"
    cache.write_bytes(content)
    hashed = hash_checkpoint(read_inventory(two), two, cache_path=cache)
    assert hashed == hash_checkpoint(read_inventory(two), two)
    assert len(json.loads(cache.read_bytes())["hashes"]) == 2


def test_a_cache_that_cannot_be_written_only_costs_time(two: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hashed = hash_checkpoint(read_inventory(two), two, cache_path=tmp_path / "file" / "hashes.json")
    assert hashed.checkpoint_sha256


def test_a_file_that_changed_or_went_away(two: Path) -> None:
    inventory = read_inventory(two)
    os.truncate(shards(two)[1], 1000)
    with pytest.raises(CheckpointError, match="changed since its header was read") as caught:
        hash_checkpoint(inventory, two)
    assert "found 1,000 bytes" in caught.value.why
    shards(two)[1].unlink()
    with pytest.raises(PrerequisiteError, match="cannot read"):
        hash_checkpoint(inventory, two)


def test_a_file_that_changes_while_it_is_hashed(two: Path) -> None:
    def touch(event: Progress) -> None:
        os.utime(shards(two)[0], ns=(1, 1))
        os.utime(shards(two)[1], ns=(1, 1))

    with pytest.raises(CheckpointError, match="was changed while it was hashed"):
        hash_checkpoint(read_inventory(two), two, listener=touch)


def test_an_interruption_ends_all_readers(two: Path) -> None:
    def interrupt(event: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hash_checkpoint(read_inventory(two), two, listener=interrupt)
