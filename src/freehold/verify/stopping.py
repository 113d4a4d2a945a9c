"""Does an answer end by itself, without leaking its end token, and does it go on when told to?

A wrong end token makes a model talk to itself; an ignored length makes every later speed figure wrong. Read
:func:`judge_stopping`.

Does not do: judging what the answers say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freehold.client.api import Completion
from freehold.engines.interface import Generation
from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict

__all__ = ["judge_stopping"]

_CHECK = "stopping"


def judge_stopping(
    answers: Mapping[str, Completion],
    forced: Generation | None,
    *,
    forced_tokens: int,
    answer_tokens: int,
    stop_texts: Sequence[str],
    should_stop: bool,
) -> Verdict:
    """Judge how answers end.

    Args:
        answers: Answers to easy questions, by name.
        forced: A continuation past the natural end; None where it cannot be asked.
        forced_tokens: The length that was asked for it.
        answer_tokens: The limit the answers had.
        stop_texts: Texts of special tokens that never belong into an answer.
        should_stop: Whether an independent engine saw these answers end.
    """
    ended = {name: answer for name, answer in answers.items() if answer.finish_reason == "stop"}
    evidence = {
        "ended": Evidence.measured(
            len(ended), "answers", source=f"finish_reason stop within {answer_tokens} tokens", n=len(answers)
        ),
        "forced_tokens": Evidence.measured(
            forced.output_tokens, "tokens", source=f"{forced_tokens} asked for, end token ignored", n=1
        )
        if forced is not None and forced.output_tokens is not None
        else Evidence.not_measured("an exact length cannot be asked of this server", "tokens"),
    }
    for name, answer in answers.items():
        leaked = [text for text in stop_texts if text and text in answer.text + answer.reasoning]
        if leaked:
            return Verdict(
                check=_CHECK,
                outcome=Outcome.FAIL,
                observation=f"the answer to {name} contains the special token {leaked[0]!r} as text",
                why="the server does not know the end token of this checkpoint, or prints special tokens",
                remedy="check the checkpoint's end tokens (generation_config.json may name more than the tokenizer)",
                evidence=evidence,
            )
    if forced is not None and forced.output_tokens is not None and forced.output_tokens != forced_tokens:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"{forced_tokens} tokens were asked for with the end token ignored, "
            f"{forced.output_tokens} came (finish reason {forced.finish_reason})",
            why="a benchmark of fixed output length would compare answers of different lengths",
            remedy="check that the server honours `ignore_eos`, and that its context is long enough",
            evidence=evidence,
        )
    if not ended:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL if should_stop else Outcome.WARN,
            observation=f"none of {len(answers)} answers ended within {answer_tokens} tokens",
            why="an independent engine saw the same questions answered and ended; the end token or the chat template "
            "is wrong, or the weights are"
            if should_stop
            else "the end token may be wrong, or the model thinks at length before it answers",
            remedy="ask the server by hand and look where the answer should have ended",
            evidence=evidence,
        )
    lengths = ", ".join(f"{name} after {answer.usage.completion_tokens} tokens" for name, answer in ended.items())
    goes_on = f"; goes on to {forced_tokens} tokens when told to" if forced and forced.output_tokens else ""
    return Verdict(
        check=_CHECK,
        outcome=Outcome.PASS,
        observation=f"{len(ended)} of {len(answers)} answers end by themselves ({lengths}){goes_on}",
        evidence=evidence,
    )
