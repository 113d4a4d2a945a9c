"""What the driver's tool prints becomes accelerators and their users; what it does not say stays unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.errors import PrerequisiteError
from freehold.hardware.nvidia import (
    AcceleratorUse,
    parse_accelerators,
    parse_uses,
    read_accelerators,
    read_uses,
)
from freehold.hardware.probe import probe_facts
from freehold.records.node import Accelerator
from freehold.world import Completed, LocalWorld

DATA = Path(__file__).resolve().parents[1] / "data" / "nvidia"
MIB = 2**20


def capture(name: str) -> str:
    return (DATA / name).read_text()


class DriverWorld(LocalWorld):
    """A machine on which ``nvidia-smi`` answers one thing, or does not exist, or hangs."""

    def __init__(self, reply: Completed | PrerequisiteError) -> None:
        super().__init__()
        self.reply = reply

    def run(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Completed:
        if argv[0] != "nvidia-smi" or isinstance(self.reply, PrerequisiteError):
            raise self.reply if isinstance(self.reply, PrerequisiteError) else missing(argv[0])
        return self.reply


def missing(program: str) -> PrerequisiteError:
    return PrerequisiteError(f"cannot run `{program}`", why="no such file", fix="install it")


def says(text: str, returncode: int = 0) -> DriverWorld:
    return DriverWorld(Completed(returncode=returncode, stdout=text, stderr=""))


def test_a_card_with_memory_of_its_own() -> None:
    assert parse_accelerators(capture("h200_gpus.csv")) == (
        Accelerator(name="NVIDIA H200", memory_bytes=143771 * MIB, compute_capability="9.0", driver="580.159.04"),
    )


def test_memory_that_belongs_to_the_processor_is_unknown_and_not_zero() -> None:
    (spark,) = parse_accelerators(capture("gb10_gpus.csv"))
    assert spark == Accelerator(name="NVIDIA GB10", memory_bytes=None, compute_capability="12.1", driver="580.95.05")


def test_several_cards_and_odd_lines_between_them() -> None:
    text = "WARNING: infoROM is corrupted at gpu 0000:01:00.0\nA, 1, 8.0, 1\n\nB, C, 2, [N/A], 1\nno, number, 9.0, 1\n"
    assert parse_accelerators(text) == (
        Accelerator(name="A", memory_bytes=MIB, compute_capability="8.0", driver="1"),
        Accelerator(name="B, C", memory_bytes=2 * MIB, compute_capability=None, driver="1"),
    )


def test_users_of_a_card() -> None:
    assert parse_uses(capture("h200_uses.csv")) == (AcceleratorUse(pid=418, name="python3", used_bytes=1634 * MIB),)
    assert parse_uses(capture("gb10_uses.csv")) == (AcceleratorUse(pid=4242, name="VLLM::EngineCore", used_bytes=None),)
    assert parse_uses("7, a, b c, 5\nnonsense\n") == (AcceleratorUse(pid=7, name="a, b c", used_bytes=5 * MIB),)


@given(st.text(max_size=200))
def test_any_text_is_read_without_complaint(text: str) -> None:
    for accelerator in parse_accelerators(text):
        assert accelerator.name
    for use in parse_uses(text):
        assert use.pid >= 0


def test_a_machine_without_the_tool_has_no_accelerators_and_no_problem() -> None:
    answer = read_accelerators(DriverWorld(missing("nvidia-smi")))
    assert (answer.accelerators, answer.problem) == ((), "")


@pytest.mark.parametrize(
    ("world", "problem"),
    [
        (says(capture("mismatch.txt"), 18), "Failed to initialize NVML: Driver/library version mismatch"),
        (says(capture("h200_unknown_field.txt"), 2), 'Field "nonsense" is not a valid field to query.'),
        (says("", 9), "it ended with 9"),
        (
            DriverWorld(PrerequisiteError("`nvidia-smi` did not end within 10 s", why="it hangs", fix="run it")),
            "`nvidia-smi` did not end within 10 s",
        ),
    ],
)
def test_a_tool_that_gives_no_answer_says_why(world: DriverWorld, problem: str) -> None:
    for answer in (read_accelerators(world), read_uses(world)):
        assert (answer.accelerators, answer.uses, answer.problem) == ((), (), problem)


def test_accelerators_are_among_the_facts_of_a_machine() -> None:
    assert probe_facts(says(capture("h200_gpus.csv"))).accelerators[0].name == "NVIDIA H200"
    assert probe_facts(says(capture("mismatch.txt"), 18)).accelerators == ()
