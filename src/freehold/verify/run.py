"""Does this server answer as its checkpoint should? Runs every check and gives the gate's record.

With a reference made by another engine the answers are compared with it; without one they are only compared with each
other, and the record's scope says so. Read :func:`verify`.

Does not do: measuring speed, or deciding what to do about a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from freehold.client.api import Endpoint
from freehold.engines.interface import Dialect
from freehold.errors import EngineError
from freehold.progress import Listener, Progress, ignore
from freehold.records.inventory import Architecture
from freehold.records.verdict import Outcome, Verdict, overall
from freehold.records.verification import Verification
from freehold.verify.binding import judge_binding
from freehold.verify.chat_template import judge_rendered, judge_template_hash
from freehold.verify.determinism import judge_determinism
from freehold.verify.fingerprint import judge_fingerprint
from freehold.verify.interview import Interview
from freehold.verify.limits import Limits, load_limits
from freehold.verify.quality import Written, judge_quality
from freehold.verify.recall import judge_recall
from freehold.verify.reference import Reference, origin_of
from freehold.verify.rescoring import judge_rescoring
from freehold.verify.stopping import judge_stopping
from freehold.verify.texts import load_texts
from freehold.verify.tokens import judge_tokens
from freehold.world import World, utc_text

__all__ = ["verify"]

_FINGERPRINT = "fingerprint"
_ALWAYS_DECIDED = frozenset({"determinism", "context_sensitivity", "stopping", "text_quality"})
"""Checks that every server that answers at all can be put to."""


def verify(
    endpoint: Endpoint,
    dialect: Dialect,
    world: World,
    *,
    checkpoint_sha256: str | None,
    reference: Reference | None,
    architecture: Architecture | None = None,
    made_from: Mapping[str, str] | None = None,
    listener: Listener = ignore,
) -> Verification:
    """Check a server's answers.

    Args:
        endpoint: The server.
        dialect: How to ask it.
        world: Gives HTTP and the clock.
        checkpoint_sha256: Hash of the served checkpoint; None for a server whose weights cannot be seen.
        reference: What an independent engine answers; None compares the server with itself only.
        architecture: What the checkpoint's header says, for its template.
        made_from: sha256 of the records this stands on, by name.
        listener: Is told about progress.

    Returns:
        The verdicts. It passed if nothing failed, what can be asked of any server was answered and, for a known
        checkpoint that has a reference, the comparison with it came to a conclusion.

    Raises:
        PrerequisiteError: The server does not answer, or refuses the key.
    """
    binding = judge_binding(reference, checkpoint_sha256, architecture, dialect.name)
    usable = None if binding.outcome is Outcome.FAIL else reference
    limits = load_limits()
    interview = Interview(endpoint, dialect, world, load_texts(), limits, reference=usable, listener=listener)
    checks = _checks(interview, usable, architecture, limits, utc_text(world.now()))
    verdicts = [binding]
    interview.num_checks = len(checks) + 1
    for name, check in checks.items():
        interview.checks_done = len(verdicts)
        verdicts.append(_guarded(name, check))
    was_compared = any(v.check == _FINGERPRINT and v.outcome is not Outcome.INCONCLUSIVE for v in verdicts)
    has_failed = any(v.outcome is Outcome.FAIL for v in verdicts)
    is_undecided = any(v.outcome is Outcome.INCONCLUSIVE and v.check in _ALWAYS_DECIDED for v in verdicts)
    is_uncompared = usable is not None and checkpoint_sha256 is not None and not was_compared
    record = Verification(
        made_from=dict(made_from or {}),
        checkpoint_sha256=checkpoint_sha256,
        scope="reference" if was_compared else "self-consistency only",
        reference=origin_of(usable) if usable is not None and was_compared else None,
        verdicts=tuple(verdicts),
        outcome=overall(verdicts),
        passed=not (has_failed or is_undecided or is_uncompared),
    )
    listener(
        Progress(
            stage="verify",
            message=f"{len(verdicts)} checks, {'passed' if record.passed else 'failed'}, {record.scope}",
            done=len(verdicts),
            total=len(verdicts),
            unit="checks",
            is_final=True,
            is_failed=not record.passed,
        )
    )
    return record


def _guarded(name: str, check: Callable[[], Verdict]) -> Verdict:
    """Run a check; a server that refuses to be asked leaves it open, one that fails at it fails it."""
    try:
        return check()
    except EngineError as error:
        status = error.facts.get("status")
        is_refusal = isinstance(status, int) and 400 <= status < 500
        return Verdict(
            check=name,
            outcome=Outcome.INCONCLUSIVE if is_refusal else Outcome.FAIL,
            observation=error.what,
            why=error.why,
            remedy=error.fix,
        )


def _checks(
    interview: Interview, reference: Reference | None, architecture: Architecture | None, limits: Limits, date: str
) -> dict[str, Callable[[], Verdict]]:
    """Every check that can be made, in order: the cheap ones that explain the others come first."""
    checks: dict[str, Callable[[], Verdict]] = {}
    if reference is not None:
        texts = {text.name: text.token_ids for text in reference.texts if not text.has_special}
        checks["tokenizer"] = lambda: judge_tokens(texts, interview.token_ids)
        checks[_FINGERPRINT] = lambda: judge_fingerprint(reference, interview.scores, limits.fingerprint, date)
    if reference is not None and reference.chats:
        chats = {chat.name: chat for chat in reference.chats}
        checks["chat_template"] = lambda: judge_rendered(
            chats,
            interview.rendered,
            {name: answer.usage.prompt_tokens for name, answer in interview.answers.items()},
        )
    else:
        template = architecture.chat_template_sha256 if architecture is not None else None
        checks["chat_template"] = lambda: judge_template_hash(template, interview.effective.get("chat_template_sha256"))
    checks["determinism"] = lambda: judge_determinism(interview.runs, limits.near_tie_nats)
    checks["rescoring"] = lambda: judge_rescoring(interview.rescored, limits.rescore_mean_abs, date)
    checks["context_sensitivity"] = lambda: judge_recall(interview.recalls)
    checks["stopping"] = lambda: judge_stopping(
        interview.answers,
        interview.forced,
        forced_tokens=interview.forced_tokens,
        answer_tokens=limits.answer_tokens,
        stop_texts=(*limits.stop_texts, interview.effective.get("eos_token", "")),
        should_stop=reference is not None
        and any(chat.finish_reason == "stop" for chat in reference.chats if chat.is_asked),
    )
    checks["text_quality"] = lambda: judge_quality(_written(interview), limits.quality)
    return checks


def _written(interview: Interview) -> dict[str, Written]:
    """Everything the server generated of its own free will."""
    written = {
        name: Written(text=runs[0].text, is_cut=runs[0].finish_reason == "length")
        for name, runs in interview.runs.items()
    }
    for name, answer in interview.answers.items():
        written[name] = Written(text=answer.reasoning + answer.text, is_cut=answer.finish_reason == "length")
    return written
