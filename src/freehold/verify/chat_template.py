"""Does the server make the prompt of a conversation that the checkpoint's own template makes?

The reference holds the prompts an independent renderer made, and their token counts; the count the chat route bills
shows whether the route really uses that prompt (a doubled begin token is one more). Without a reference the hash of
the server's template is compared with the checkpoint's. Read :func:`judge_rendered`, then :func:`judge_template_hash`.

Does not do: rendering templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from freehold.evidence import Evidence
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.reference import ReferenceChat

__all__ = ["judge_rendered", "judge_template_hash"]

_CHECK = "chat_template"
# Some templates write today's date into the prompt: two days never render alike.
_DATES = re.compile(
    r"\d{4}-\d{2}-\d{2}|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{4}"
    r"|(?:January|February|March|April|May|June|July|August|September|October|November|December) \d{1,2}, \d{4}"
)


def judge_rendered(
    expected: Mapping[str, ReferenceChat],
    rendered: Mapping[str, str | None],
    prompt_tokens: Mapping[str, int | None],
) -> Verdict:
    """Compare the server's prompts with an independent renderer's.

    Args:
        expected: The reference's conversations by name.
        rendered: The server's prompts by name; None where it does not show them.
        prompt_tokens: Tokens the chat route counted, for the conversations that were asked.
    """
    counts = {
        name: (count, len(expected[name].token_ids)) for name, count in prompt_tokens.items() if count is not None
    }
    wrong_counts = {name: pair for name, pair in counts.items() if pair[0] != pair[1] and not _has_date(expected[name])}
    evidence = {
        "rendered": Evidence.measured(
            sum(text is not None for text in rendered.values()),
            "prompts",
            source="prompts the server showed",
            n=len(expected),
        )
    }
    for name, (count, wanted) in counts.items():
        evidence[f"prompt_tokens_{name}"] = Evidence.measured(
            count, "tokens", source=f"usage of the chat route; the independent renderer's prompt has {wanted}", n=1
        )
    for name, chat in expected.items():
        text = rendered.get(name)
        if text is not None and _without_dates(text) != _without_dates(chat.rendered):
            return Verdict(
                check=_CHECK,
                outcome=Outcome.FAIL,
                observation=f"the prompt of {name} is not the template's: {_first_difference(chat.rendered, text)}",
                why="the model sees another conversation format than it was trained on; answers get worse or never end",
                remedy="start the server with the checkpoint's own template (no template option, same tokenizer files)",
                evidence=evidence,
            )
    if wrong_counts:
        name, (count, wanted) = next(iter(wrong_counts.items()))
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"the chat route counts {count} prompt tokens for {name}, the template's prompt has {wanted}",
            why="the route adds or loses tokens, such as a second begin-of-sequence token",
            remedy="check the server's template and its special-token options",
            evidence=evidence,
        )
    num_shown = sum(text is not None for text in rendered.values())
    if num_shown == len(expected):
        billed = f"; the chat route counts {len(counts)} of them alike" if counts else ""
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"{num_shown} of {num_shown} prompts are the template's, to the letter{billed}",
            evidence=evidence,
        )
    if counts:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation=f"the server does not show its prompts; their lengths agree for {len(counts)} conversations",
            why="two templates can have the same length",
            remedy="use an engine that renders a conversation on request to be sure",
            evidence=evidence,
        )
    return Verdict(
        check=_CHECK,
        outcome=Outcome.INCONCLUSIVE,
        observation="the server neither shows its prompts nor counts their tokens",
        why="a wrong template would go unseen",
        remedy="use an engine that renders a conversation on request",
        evidence=evidence,
    )


def judge_template_hash(checkpoint_sha256: str | None, server_sha256: str | None) -> Verdict:
    """Compare the hash of the checkpoint's template with that of the template the server states.

    Args:
        checkpoint_sha256: Of the template in the checkpoint; None where it cannot be seen.
        server_sha256: Of the template the server says it uses; None where it does not say.
    """
    if checkpoint_sha256 is None or server_sha256 is None:
        side = "the checkpoint" if checkpoint_sha256 is None else "the server"
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation=f"{side} does not show its chat template, so it was not compared",
            why="a wrong template would go unseen",
            remedy="give a reference, which holds the rendered prompts",
        )
    evidence = {
        "server_template_sha256": Evidence.measured(server_sha256, source="SHA-256 of the template the server states"),
        "checkpoint_template_sha256": Evidence.verified(checkpoint_sha256, source="the checkpoint's header"),
    }
    if checkpoint_sha256 == server_sha256:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.PASS,
            observation=f"the server uses the checkpoint's own template (sha256 {server_sha256[:12]}…)",
            evidence=evidence,
        )
    return Verdict(
        check=_CHECK,
        outcome=Outcome.FAIL,
        observation=f"the server uses a template with sha256 {server_sha256[:12]}…, "
        f"the checkpoint holds {checkpoint_sha256[:12]}…",
        why="the model sees another conversation format than it was trained on",
        remedy="start the server without a template option",
        evidence=evidence,
    )


def _without_dates(text: str) -> str:
    return _DATES.sub("<date>", text)


def _has_date(chat: ReferenceChat) -> bool:
    return _DATES.search(chat.rendered) is not None


def _first_difference(expected: str, found: str) -> str:
    place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if place is None:
        place = min(len(expected), len(found))
    return f"at character {place + 1} found {found[place : place + 40]!r}, expected {expected[place : place + 40]!r}"
