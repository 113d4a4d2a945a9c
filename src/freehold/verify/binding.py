"""Does the reference belong to the checkpoint that is served? Decided by hashes alone.

Read :func:`judge_binding`.

Does not do: comparing answers; with another checkpoint there is nothing to compare.
"""

from __future__ import annotations

from freehold.evidence import Evidence
from freehold.records.inventory import Architecture
from freehold.records.verdict import Outcome, Verdict
from freehold.verify.reference import Reference

__all__ = ["judge_binding"]

_CHECK = "checkpoint_binding"


def judge_binding(
    reference: Reference | None, checkpoint_sha256: str | None, architecture: Architecture | None, engine: str
) -> Verdict:
    """Whether the stored reference may be used for this server.

    Args:
        reference: The reference; None without one.
        checkpoint_sha256: Hash of the served checkpoint; None where the weights cannot be seen.
        architecture: What the checkpoint's header says; None where it cannot be seen.
        engine: The server's engine, by the name of its dialect.
    """
    if reference is None:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation="no reference was given, so nothing ties the answers to a checkpoint",
            why="a server can be consistent with itself and still compute the wrong thing",
            remedy="give a reference made by another engine: `--reference FILE`, or `verify: {reference: FILE}`",
        )
    evidence = {
        "reference_checkpoint_sha256": Evidence.verified(
            reference.checkpoint_sha256, source="the reference file", date=reference.date
        )
    }
    if checkpoint_sha256 is not None:
        evidence["checkpoint_sha256"] = Evidence.measured(checkpoint_sha256, source="SHA-256 of the checkpoint")
        if checkpoint_sha256 != reference.checkpoint_sha256:
            return Verdict(
                check=_CHECK,
                outcome=Outcome.FAIL,
                observation=f"the checkpoint has sha256 {checkpoint_sha256[:12]}…, the reference belongs to "
                f"{reference.checkpoint_sha256[:12]}… ({reference.model})",
                why="the file is damaged, replaced, or another model; comparing it with this reference proves nothing",
                remedy="fetch the checkpoint again, or name the reference that was made for it",
                evidence=evidence,
            )
    if (
        architecture is not None
        and architecture.chat_template_sha256 is not None
        and reference.chat_template_sha256 is not None
        and architecture.chat_template_sha256 != reference.chat_template_sha256
    ):
        return Verdict(
            check=_CHECK,
            outcome=Outcome.FAIL,
            observation=f"the checkpoint's chat template has sha256 {architecture.chat_template_sha256[:12]}…, "
            f"the reference was made with {reference.chat_template_sha256[:12]}…",
            why="somebody changed the template inside the checkpoint",
            remedy="use the original checkpoint, or make a reference for the changed one",
            evidence=evidence,
        )
    if reference.engine == engine:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation=f"the reference was made by {reference.engine} {reference.engine_version}, "
            "the same engine that is under test",
            why="an engine that computes something wrong agrees with itself",
            remedy="make the reference with another engine",
            evidence=evidence,
        )
    if checkpoint_sha256 is None:
        return Verdict(
            check=_CHECK,
            outcome=Outcome.WARN,
            observation="the server's weights cannot be seen from here, so the reference is bound to it "
            "by the log-probabilities alone",
            why="the server was not started by freehold",
            remedy=f"compare the checkpoint's sha256 on the server's machine with {reference.checkpoint_sha256[:12]}…",
            evidence=evidence,
        )
    return Verdict(
        check=_CHECK,
        outcome=Outcome.PASS,
        observation=f"checkpoint and reference have sha256 {checkpoint_sha256[:12]}…; the reference was made by "
        f"{reference.engine} {reference.engine_version} in {reference.dtype}",
        evidence=evidence,
    )
