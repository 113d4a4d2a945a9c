"""Does the server cut text into the same tokens as the reference?

A wrong tokenizer leaves the weights innocent and the answers worse, so it is looked at before the log-probabilities.
Read :func:`judge_tokens`.

Does not do: special tokens; they are seen in the rendered conversations (``verify/chat_template.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict

__all__ = ["judge_tokens"]

_CHECK = "tokenizer"


def judge_tokens(expected: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int] | None]) -> Verdict:
    """Compare token ids text by text.

    Args:
        expected: The reference's tokens by text.
        found: The server's; None where it does not say.
    """
    missing = [name for name in expected if found.get(name) is None]
    if missing:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.INCONCLUSIVE,
            observation=f"the server does not say how it cuts {', '.join(missing)} into tokens",
            why="a wrong tokenizer would go unseen here",
            remedy="the log-probabilities are scored on the reference's own tokens and do not depend on it",
        )
    num_tokens = sum(len(tokens) for tokens in expected.values())
    evidence = {
        "tokens": Evidence.measured(
            num_tokens, "tokens", source="the server's tokenizer on the reference's texts", n=len(expected)
        )
    }
    differing = [name for name, tokens in expected.items() if list(tokens) != list(found[name] or ())]
    if not differing:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"all {num_tokens} tokens of {len(expected)} texts are the reference's",
            evidence=evidence,
        )
    name = differing[0]
    ours, theirs = list(expected[name]), list(found[name] or ())
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return Verdict(
        check=_CHECK,
        outcome=Outcome.FAIL,
        observation=f"{len(differing)} of {len(expected)} texts are cut differently; {name} from token {place}: "
        f"found {theirs[place : place + 3]}, expected {ours[place : place + 3]}",
        why="the model reads other tokens than it was trained on",
        remedy="serve the checkpoint with its own tokenizer; check its pre-tokenizer setting",
        evidence=evidence,
    )
