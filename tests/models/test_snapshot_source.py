"""Checkpoints downloaded from a hub, over real sockets and through the real huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models.inventory import read_inventory
from freehold.models.source import FetchedModel, fetch_model
from freehold.progress import Progress
from freehold.world import LocalWorld

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MakeHub = Callable[[Path], Any]


@pytest.fixture
def root(made: ModuleType, tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    tensors = [made.Made(f"model.layers.{i}.mlp.gate_proj.weight", (64, 64), "F32") for i in range(4)]
    made.write_safetensors_shards(folder, tensors, 2, {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4})
    for name in ("tokenizer.json", "README.md", "picture.png", "pytorch_model.bin", "tokenizer.model"):
        (folder / name).write_text(f'{{"name": "{name}"}}')
    return folder


def fetch(hub: Any, cache: Path, source: str = "hf:owner/name", **options: Any) -> FetchedModel:
    return fetch_model(source, cache=cache, world=LocalWorld(), endpoint=hub.url, token=False, **options)


def fails(hub: Any, cache: Path, kind: type[FreeholdError], *parts: str, source: str = "hf:owner/name") -> None:
    with pytest.raises(kind) as caught:
        fetch(hub, cache, source)
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text


def test_the_needed_files_come_at_one_commit_and_are_found_again_offline(
    root: Path, tmp_path: Path, make_hub: MakeHub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub, cache = make_hub(root), tmp_path / "cache"
    events: list[Progress] = []
    fetched = fetch(hub, cache, listener=events.append)
    assert (fetched.source, fetched.revision) == (f"hf:owner/name@{COMMIT}", COMMIT)
    assert [p.name for p in fetched.files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert sorted(p.name for p in fetched.folder.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
    ]
    assert read_inventory(fetched.folder, source="repo") == read_inventory(root)
    counted = [e for e in events if e.unit == "bytes"]
    assert counted
    assert counted[-1].done == counted[-1].total
    assert capfd.readouterr() == ("", "")

    before = len(hub.requests)
    assert fetch(hub, cache, f"hf:owner/name@{COMMIT}").files == fetched.files
    online_again = fetch(hub, cache)
    assert online_again.files == fetched.files
    assert not [path for path, _ in hub.requests[before:] if path.endswith((".safetensors", "tokenizer.json"))]

    hub.url = "http://127.0.0.1:9"
    offline = fetch(hub, cache)
    assert offline.files == fetched.files
    assert any("cannot be reached" in note and COMMIT[:12] in note for note in offline.notes)
    assert fetch(hub, cache, f"hf:owner/name@{COMMIT}").notes == ()


def test_only_the_file_that_was_named(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    folder = tmp_path / "repo" / "quants"
    folder.mkdir(parents=True)
    for kind in ("Q2_K", "Q6_K"):
        made.write_gguf(
            folder / f"m-{kind}.gguf", [made.Made("output.weight", (4, 256), kind)], {"general.architecture": "llama"}
        )
    hub, cache = make_hub(tmp_path / "repo"), tmp_path / "cache"
    fails(hub, cache, InputError, "holds its checkpoints in folders")
    fails(hub, cache, InputError, "holds 2 checkpoints", source="hf:owner/name:quants")
    fetched = fetch(hub, cache, "hf:owner/name:quants/m-Q6_K.gguf")
    assert [p.name for p in fetched.files] == ["m-Q6_K.gguf"]
    assert [p.name for p in fetched.folder.iterdir()] == ["m-Q6_K.gguf"]
    assert fetched.source == f"hf:owner/name@{COMMIT}:quants/m-Q6_K.gguf"
    assert read_inventory(fetched.files[0]).by_type.keys() == {"Q6_K"}


def test_nothing_in_the_cache_and_nobody_there(root: Path, tmp_path: Path, make_hub: MakeHub) -> None:
    hub = make_hub(root)
    hub.url = "http://127.0.0.1:9"
    fails(hub, tmp_path / "cache", PrerequisiteError, "cannot be reached for owner/name")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("status", ["401", "403", "500"])
def test_refusals_half_way(root: Path, tmp_path: Path, make_hub: MakeHub, status: str) -> None:
    hub = make_hub(root)
    hub.file_mode = status
    fails(hub, tmp_path / "cache", PrerequisiteError, status)
    assert not list((tmp_path / "cache").rglob("freehold-*.json"))


def test_a_missing_shard_is_known_before_anything_is_downloaded(root: Path, tmp_path: Path, make_hub: MakeHub) -> None:
    (root / "model-00002-of-00002.safetensors").unlink()
    hub = make_hub(root)
    fails(hub, tmp_path / "cache", CheckpointError, "model-00002-of-00002.safetensors")
    assert not [path for path, _ in hub.requests if path.endswith("00001-of-00002.safetensors")]


def test_too_little_space_is_known_before_anything_is_downloaded(
    root: Path, tmp_path: Path, make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    hub = make_hub(root)
    fails(hub, tmp_path / "cache", PrerequisiteError, "1.0 kB are free")
    assert not [path for path, _ in hub.requests if path.endswith("00001-of-00002.safetensors")]


def test_a_cache_that_cannot_be_written(root: Path, tmp_path: Path, make_hub: MakeHub) -> None:
    (tmp_path / "file").write_text("")
    fails(make_hub(root), tmp_path / "file" / "cache", PrerequisiteError, "cannot write to the model cache")


def test_a_pin_over_all_shards(root: Path, tmp_path: Path, make_hub: MakeHub) -> None:
    hub = make_hub(root)
    with pytest.raises(CheckpointError, match="not the checkpoint that is pinned"):
        fetch(hub, tmp_path / "cache", sha256="0" * 64)
