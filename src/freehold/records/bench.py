"""How fast it was, as the client saw it.

Does not do: measuring or statistics (``bench/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from freehold.evidence import Evidence
from freehold.records.base import record

__all__ = ["BenchArm", "BenchResult", "CounterGap", "Distribution"]


@record
class Distribution:
    """One metric over the counted requests of an arm.

    Args:
        mean: Mean with n and 95 % interval, or not measured.
        p10: 10th percentile.
        p50: Median.
        p90: 90th percentile.
        p99: 99th percentile.
        worst: Largest value for times, smallest for rates.
    """

    mean: Evidence
    p10: Evidence
    p50: Evidence
    p90: Evidence
    p99: Evidence
    worst: Evidence


@record
class CounterGap:
    """Tokens by three ledgers over one arm's window, and the difference explained in words.

    Args:
        client_tokens: Completion tokens the client accepted as delivered (usage, cross-checked).
        usage_tokens: Sum of the API's usage fields.
        server_tokens: Difference of the engine's own counter.
        explanation: Why they differ, or that they agree.
    """

    client_tokens: Evidence
    usage_tokens: Evidence
    server_tokens: Evidence
    explanation: str


@record
class BenchArm:
    """One experiment: a prompt class at one concurrency.

    Args:
        prompt_class: ``code`` or ``prose``.
        concurrency: Streams in flight; 1 is the single stream.
        requests: Requests that were counted.
        warmup: Requests dropped before them.
        failed: Requests that failed and are not in the figures.
        prompt_tokens: Mean prompt length by the server's count.
        output_tokens: Output tokens per request by the server's count.
        metrics: ``ttft_s tpot_s itl_s e2e_s decode_tok_per_s`` (per request) by name.
        output_tok_per_s: Aggregate: all output tokens over the arm's wall time.
        ceiling_share: Measured decode speed over the plan's ceiling.
        counters: The three ledgers.
        flags: What looks wrong with the numbers: stalls, usage that contradicts the stream, reused prefix …
    """

    prompt_class: str
    concurrency: int
    requests: int
    warmup: int
    failed: int
    prompt_tokens: Evidence
    output_tokens: Evidence
    metrics: Mapping[str, Distribution]
    output_tok_per_s: Evidence
    ceiling_share: Evidence
    counters: CounterGap
    flags: tuple[str, ...] = ()


@record
class BenchResult:
    """All arms, and whether they may be quoted.

    Args:
        verified: Whether a passing verification of the same deployment stands behind it.
        verification_scope: From the verification: ``reference`` or ``self-consistency only``; None if unverified.
        interrupted: Whether it was cut short; what was measured is kept.
        arms: One per prompt class and concurrency.
        samples: Base name of the raw samples file (JSONL) and its sha256.
        started_at: UTC ISO time.
        wall_s: Duration of the stage.
        command: How to measure it again.
        node: Facts of the client's machine that matter: processor, cores, load before the start.
    """

    schema: Literal["freehold.bench/1"] = "freehold.bench/1"
    made_from: Mapping[str, str]
    verified: bool
    verification_scope: str | None
    interrupted: bool
    arms: tuple[BenchArm, ...]
    samples: Mapping[str, str]
    started_at: str
    wall_s: float
    command: str
    node: Mapping[str, str]
