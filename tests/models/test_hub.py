"""Reading checkpoints from a hub by ranges, over real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freehold.errors import CheckpointError, FreeholdError, InputError, PrerequisiteError
from freehold.models import hub as hub_module
from freehold.models.inventory import read_inventory, read_remote_inventory
from freehold.progress import Progress
from freehold.records.inventory import Inventory
from freehold.secret import Secret

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MakeHub = Callable[[Path], Any]
META = {"general.architecture": "llama", "llama.block_count": 1}


def read(hub: Any, **options: Any) -> Inventory:
    return read_remote_inventory("owner/name", endpoint=hub.url, **{"token": False, **options})


def fails(hub: Any, kind: type[FreeholdError], *parts: str, **options: Any) -> None:
    with pytest.raises(kind) as caught:
        read(hub, **options)
    assert type(caught.value) is kind
    text = f"{caught.value.what} | {caught.value.why} | {caught.value.fix}"
    for part in parts:
        assert part in text
    assert "Traceback" not in text


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "_FIRST_WAIT_S", 0.01)


@pytest.fixture
def one_gguf(made: ModuleType, tmp_path: Path) -> Path:
    """A repository with one GGUF of 40 MB, 2 MB of which are its header."""
    root = tmp_path / "repo"
    root.mkdir()
    words = [f"token number {i}" for i in range(80_000)]
    tensors = [made.Made("token_embd.weight", (20_000, 1000), "F16")]
    made.write_gguf(root / "m-F16.gguf", tensors, META | {"tokenizer.ggml.tokens": words})
    (root / "README.md").write_text("hello")
    return root


# --- as on disk -----------------------------------------------------------------------------------------------------


def test_nine_shards_of_330_gb_cost_some_hundred_kilobytes(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    made.write_k3_neuron(tmp_path / "repo")
    hub = make_hub(tmp_path / "repo")
    events: list[Progress] = []
    remote = read(hub, listener=events.append)
    local = read_inventory(tmp_path / "repo")
    assert remote.source == f"hf:owner/name@{COMMIT}"
    assert replace(remote, source=local.source) == local
    assert remote.tensor_bytes == 330_160_710_016
    assert hub.sent_bytes == 9 * 128 * 1024  # one piece per shard; each header fits
    assert len(hub.requests) == 1 + 9
    assert [(e.done, e.total) for e in events[:-1]] == [(n, 9) for n in range(1, 10)]
    assert events[-1].is_final
    assert events[-1].message == "1.2 MB of 330.2 GB transferred"  # 9 · 131,072 bytes


def test_sharded_safetensors_with_index_and_config(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    root = tmp_path / "repo"
    paths = made.write_k3_native(root, num_shards=12, num_layers=6, num_experts=40)
    (root / "generation_config.json").write_text(json.dumps({"eos_token_id": 163586}))
    (root / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    hub = make_hub(root)
    remote = read(hub)
    assert replace(remote, source="repo") == read_inventory(root)
    assert remote.architecture.eos_token_ids == (163586,)
    texts = sum(p.stat().st_size for p in root.glob("*.json"))
    headers = remote.file_bytes - remote.tensor_bytes
    assert headers + texts <= hub.sent_bytes <= texts + len(paths) * (128 * 1024 + 8)
    assert hub.sent_bytes < remote.file_bytes / 9_000  # mostly the pieces' size; the headers are far smaller


def test_a_long_header_takes_few_requests_and_no_data(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    remote = read(hub)
    assert replace(remote, source="repo") == read_inventory(one_gguf)
    header_bytes = remote.file_bytes - remote.tensor_bytes
    assert header_bytes > 1_900_000
    assert hub.sent_bytes < 2 * header_bytes < remote.file_bytes / 8
    assert len([1 for path, _ in hub.requests if path.endswith(".gguf")]) <= 6


def test_a_long_safetensors_header_is_read_exactly(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    tensors = [made.Made(f"model.layers.{i}.mlp.gate_proj.weight", (64, 1024), "BF16") for i in range(4000)]
    made.write_safetensors(root / "model.safetensors", tensors)
    hub = make_hub(root)
    remote = read(hub)
    assert remote.num_tensors == 4000
    assert hub.sent_bytes == remote.file_bytes - remote.tensor_bytes > 128 * 1024


def test_a_folder_or_file_of_a_repository_of_many(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    root = tmp_path / "repo"
    for folder, kind in (("Q2_K", "Q2_K"), ("Q6_K", "Q6_K")):
        made.write_gguf_shards(
            root / folder, f"m-{kind}", [made.Made(f"t{i}", (4, 256), kind) for i in range(4)], META, 2
        )
    hub = make_hub(root)
    fails(hub, InputError, "holds its checkpoints in folders", "Q2_K, Q6_K", "hf:owner/name:Q2_K")
    assert read(hub, file="Q2_K").by_type.keys() == {"Q2_K"}
    found = read(hub, file="Q6_K/m-Q6_K-00002-of-00002.gguf")
    assert found.num_tensors == 4
    assert found.source == f"hf:owner/name@{COMMIT}:Q6_K/m-Q6_K-00002-of-00002.gguf"
    assert [f.name for f in found.files] == ["m-Q6_K-00001-of-00002.gguf", "m-Q6_K-00002-of-00002.gguf"]
    fails(hub, InputError, "has no Q9_K", "Q2_K/m-Q2_K-00001-of-00002.gguf", file="Q9_K")


def test_revisions_are_resolved_to_their_commit(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    assert read(hub, revision="main").source == f"hf:owner/name@{COMMIT}"
    assert read(hub, revision=COMMIT).source == f"hf:owner/name@{COMMIT}"
    fails(hub, InputError, "has no revision v9", revision="v9")


def test_a_missing_shard_is_named_as_on_disk(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    made.write_k3_neuron(tmp_path / "repo")
    (tmp_path / "repo" / "k3-neuron-iq1s-00005-of-00009.gguf").unlink()
    fails(make_hub(tmp_path / "repo"), CheckpointError, "k3-neuron-iq1s-00005-of-00009.gguf", "1 of 9 shards")


def test_a_token_goes_over_the_wire_and_nowhere_else(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    found = read(hub, token=Secret("hf_very_secret"))
    assert hub.authorizations == {"Bearer hf_very_secret"}
    assert "very_secret" not in repr(found)
    anonymous = make_hub(one_gguf)
    read(anonymous)
    assert anonymous.authorizations == {None}


# --- a server that is not what it should be -------------------------------------------------------------------------


def test_a_server_that_ignores_ranges_is_refused_before_it_sends_the_file(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    hub.file_mode = "whole"
    size = (one_gguf / "m-F16.gguf").stat().st_size
    fails(hub, PrerequisiteError, "ignores ranges", f"{size:,} bytes", "expected 206")
    assert hub.sent_bytes < size  # what the socket buffers took before the line was cut


def test_small_files_may_come_whole(made: ModuleType, tmp_path: Path, make_hub: MakeHub) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    made.write_safetensors(root / "model.safetensors", [made.Made("lm_head.weight", (2, 2), "F32")])
    hub = make_hub(root)
    hub.file_mode = "whole"
    assert read(hub).num_tensors == 1


@pytest.mark.parametrize("where", ["mode", "file_mode"])
def test_a_web_page_in_place_of_data(one_gguf: Path, make_hub: MakeHub, where: str) -> None:
    hub = make_hub(one_gguf)
    setattr(hub, where, "html")
    fails(hub, PrerequisiteError, "web page" if where == "file_mode" else "no data", "browser")


def test_another_range_than_was_asked_for(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    hub.file_mode = "shifted"
    fails(hub, PrerequisiteError, "another range", "bytes 1-131072/", "expected bytes 0-131071")


def test_a_connection_that_breaks_is_tried_again_and_then_given_up(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    hub.file_mode = "short"
    fails(hub, PrerequisiteError, "cannot be reached")
    assert len([1 for path, _ in hub.requests if path.endswith(".gguf")]) == 3


def test_a_busy_server_is_asked_again(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    hub.failures_left = 2
    assert read(hub).num_tensors == 1
    hub.failures_left = 3
    fails(hub, PrerequisiteError, "status 503", "try again later")


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ("401", PrerequisiteError, "gated, private, or does not exist"),
        ("403", PrerequisiteError, "hf auth login"),
        ("404", InputError, "the hub has no"),
        ("429", PrerequisiteError, "slow down"),
        ("500", PrerequisiteError, "status 500"),
        ("418", PrerequisiteError, "status 418"),
    ],
)
@pytest.mark.parametrize("where", ["mode", "file_mode"])
def test_refusals(
    one_gguf: Path, make_hub: MakeHub, where: str, status: str, kind: type[FreeholdError], says: str
) -> None:
    hub = make_hub(one_gguf)
    setattr(hub, where, status)
    fails(hub, kind, says)


def test_a_file_that_shrank_since_it_was_listed(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    listing = hub.listing(blobs=True)
    hub.listing = lambda *, blobs: listing
    (one_gguf / "m-F16.gguf").write_bytes(b"GGUF\x03\0\0\0")
    fails(hub, PrerequisiteError, "another range")
    (one_gguf / "m-F16.gguf").write_bytes(b"")
    fails(hub, CheckpointError, "shorter than the hub's listing says")


def test_a_listing_without_sizes(one_gguf: Path, make_hub: MakeHub) -> None:
    hub = make_hub(one_gguf)
    bare = hub.listing(blobs=False)
    hub.listing = lambda *, blobs: bare
    fails(hub, PrerequisiteError, "listing of owner/name is incomplete")


def test_nobody_there(one_gguf: Path, make_hub: MakeHub) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hub = make_hub(one_gguf)
        hub.url = f"http://127.0.0.1:{taken.getsockname()[1]}"  # bound, not listening
        fails(hub, PrerequisiteError, "cannot be reached for owner/name", "check the network")


def test_a_repository_without_a_checkpoint(tmp_path: Path, make_hub: MakeHub) -> None:
    (tmp_path / "README.md").write_text("x")
    fails(make_hub(tmp_path), InputError, "no checkpoint in hf:owner/name@0123456789ab", "README.md")


def test_a_lying_header_on_a_hub_costs_one_piece(tmp_path: Path, make_hub: MakeHub) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((10**11).to_bytes(8, "little"))
        file.truncate(2 * 10**11)
    hub = make_hub(tmp_path)
    fails(hub, CheckpointError, "no safetensors file")
    assert hub.sent_bytes <= 128 * 1024 + 8
