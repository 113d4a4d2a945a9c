"""``freehold catalog``: lists, shows, refuses, and stays within a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freehold.cli.main import main


def test_the_list_fits_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog"]) == 0
    out = capfd.readouterr().out
    assert "dgx-spark" in out
    assert "kimi-k3-neuron-iq1s" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", ["dgx-spark", "kimi-k3", "k3-neuron:expert_width=1024", "deepseek-v4-flash", "h200"])
def test_an_entry_shows_its_facts_with_their_sources(capfd: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["catalog", "show", name]) == 0
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "2026-" in out


def test_json_holds_what_the_text_shows(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "show", "kimi-k3-neuron-iq1s", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["tensor_bytes"] == 330160710016
    assert shown["parameters"] == [
        {"name": "expert_width", "value": 1536, "allowed": [512, 768, 1024, 1536, 2048]},
    ]
    assert main(["catalog", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    assert {"dgx-spark", "h200"} <= {h["name"] for h in listed["hardware"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "dgx-sprak"], "dgx-spark"),
        (["show", "k3-neuron:expert_width=1280"], "6,144 / 1,280 = 4.8"),
        (["show"], "needs the name"),
        (["list", "h200"], "catalog show h200"),
        (["--catalogue", "nowhere"], "no folder"),
    ],
)
def test_misuse_ends_with_the_way_out(capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["catalog", *words]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_a_folder_of_ones_own_joins(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "hardware.toml").write_text('[box]\ntitle = "My box"\n')
    assert main(["catalog", "--catalogue", str(tmp_path)]) == 0
    assert "My box" in capfd.readouterr().out
