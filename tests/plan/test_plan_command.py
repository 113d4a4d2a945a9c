"""``freehold plan`` on a small real GGUF file: the table, the exit codes, the JSON and its mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest

from freehold.cli.main import main
from freehold.records.base import decode
from freehold.records.plan import Plan

RECIPE = "freehold: 1\nname: tiny\nmodel: {model}\nengine: {{name: llama.cpp}}\ncontext: 1024\n"


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A recipe for a llama file of one layer, 64 wide, with a vocabulary of 100."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_vocab_size(100)
    shapes = {
        "token_embd": (100, 64),
        "blk.0.attn_q": (64, 64),
        "blk.0.attn_k": (32, 64),
        "blk.0.attn_v": (32, 64),
        "blk.0.attn_output": (64, 64),
        "blk.0.ffn_gate": (128, 64),
        "blk.0.ffn_up": (128, 64),
        "blk.0.ffn_down": (64, 128),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(model=path))
    return recipe


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("freehold.hardware.bandwidth._KERNEL_S", 0.03)

    def run(*arguments: object) -> Ran:
        code = main(["plan", *map(str, arguments)])
        captured = capfd.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


def test_a_recipe_that_fits(command: Callable[..., Ran], tiny: Path) -> None:
    ran = command(tiny)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "tiny · llama.cpp · 1,024 tokens × 1 sequence"
    assert max(map(len, lines)) <= 100
    # (100×64 + 2 × 64×64 + 2 × 32×64 + 3 × 128×64) values of 4 B
    assert "weights       169.0 KiB  verified    8 tensors, 173,056 B" in ran.out
    # 1 layer × 2 × 2 heads × 16 wide × 2 B
    assert "128 B per token × 1,024 tokens × 1 sequence" in ran.out
    assert "fits: 17" in ran.out
    assert "longest context" in ran.out
    assert "a bound, never a prediction" in ran.out
    assert ran.err.startswith("✓ plan       fits (")


def test_a_recipe_that_does_not_fit_ends_with_1_and_says_what_frees_how_much(
    command: Callable[..., Ran], tiny: Path
) -> None:
    ran = command(tiny, "--context", 4096, "--sequences", 3_000_000)
    assert ran.code == 1
    assert "does not fit: " in ran.out
    assert "error: the plan does not fit: " in ran.err
    # 128 B × 4,096 tokens × 3,000,000 sequences, and all but one of them
    assert "why: kv cache 1.4 TiB" in ran.err
    assert "`--sequences 1` frees 1.4 TiB" in ran.err


def test_the_json_is_the_record(command: Callable[..., Ran], tiny: Path) -> None:
    ran = command(tiny, "--json")
    assert (ran.code, ran.err) == (0, "")
    record = decode(Plan, ran.out.encode())
    assert record.fits is True
    assert set(record.made_from) == {"recipe.yaml", "inventory.json", "node.json", "node_state.json"}
    assert str(tiny.parent) not in ran.out, "no path of this machine"
    assert json.loads(ran.out)["terms"][0]["bytes"]["value"] == 173_056


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (RECIPE.format(model="nowhere.gguf"), "nowhere.gguf does not exist"),
        (RECIPE.format(model="hf:a/b").replace("llama.cpp", "llamacpp"), "llamacpp"),
        (RECIPE.format(model="hf:a/b") + "options: {thread: 2}\n", "thread"),
        (RECIPE.format(model="hf:a/b") + "contxt: 2\n", "unknown key `contxt`"),
    ],
)
def test_mistakes_end_with_2_and_one_sentence(
    command: Callable[..., Ran], tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    ran = command(path)
    assert (ran.code, ran.out) == (2, "")
    assert what in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


def test_a_missing_recipe_and_a_wrong_count(command: Callable[..., Ran], tmp_path: Path) -> None:
    assert command(tmp_path / "none.yaml").code == 2
    assert command("--context", 0).code == 2
