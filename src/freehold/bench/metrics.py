"""How long did one request take, seen by its client? TTFT, TPOT, ITL, E2E and decode speed of one stream.

Read :func:`measure_request`. The definitions are those of docs/concepts: TTFT ends with the first chunk that shows
something (reasoning counts, a bare role does not); E2E ends with the last chunk that delivers a token; ITL is the gap
between chunks, which may hold several tokens; TPOT is one value per request.

TPOT is (E2E - TTFT) / (tokens - k), where k is the number of tokens that the first chunk brought. With one token per
chunk this is the usual ``tokens - 1``. Where the first chunk holds more, ``tokens - 1`` would count tokens as produced
after TTFT that had arrived with it, and report 2 % too high a speed for 3 of 100.

Does not do: anything over several requests (``bench/summary.py``).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from freehold.bench.tokens import Flag, TokenCount, count_tokens
from freehold.client.api import StreamEvent, StreamTrace
from freehold.units import format_duration

__all__ = ["MIN_STALL_S", "STALL_RATIO", "RequestMetrics", "Stall", "measure_request"]

MIN_STALL_S: Final = 0.25
STALL_RATIO: Final = 10.0
"""A gap is a stall when it is at least ``MIN_STALL_S`` long and at least so many times the request's median gap, after
what the client itself may have been late by is taken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A pause inside a stream: its length and the tokens delivered before it (``~`` in words if only judged)."""

    gap_s: float
    after_tokens: int
    is_exact: bool

    @property
    def text(self) -> str:
        """In words."""
        place = f"{'' if self.is_exact else 'about '}token {self.after_tokens:,}"
        return f"stalled {format_duration(self.gap_s)} after {place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics:
    """One request, measured.

    Args:
        error: Why there are no figures; None when there are.
        ttft_s: Sent until the first output.
        first_answer_s: Sent until the first text after the reasoning; None without reasoning or without an answer.
        e2e_s: Sent until the last token.
        tpot_s: Time per token after the first chunk; None for a single chunk, or several at the same moment.
        decode_tok_per_s: 1 / TPOT.
        itl_s: Gaps between chunks that delivered something.
        output_tokens: Tokens delivered, reasoning included; of a failed request, those that are certain.
        usage_tokens: What the usage states.
        counted_by: The ledger behind ``output_tokens``.
        prompt_tokens: Prompt length by the server's count.
        cached_tokens: Prompt tokens that the server did not compute anew, by its own count.
        stalls: Pauses.
        flags: What looks wrong.
    """

    error: str | None = None
    ttft_s: float | None = None
    first_answer_s: float | None = None
    e2e_s: float | None = None
    tpot_s: float | None = None
    decode_tok_per_s: float | None = None
    itl_s: tuple[float, ...] = ()
    output_tokens: int
    usage_tokens: int | None
    counted_by: str
    prompt_tokens: int | None
    cached_tokens: int | None
    stalls: tuple[Stall, ...] = ()
    flags: tuple[Flag, ...] = ()


def measure_request(trace: StreamTrace, requested_tokens: int | None = None) -> RequestMetrics:
    """Measure one stream.

    Args:
        trace: What arrived, and when.
        requested_tokens: Output length that was asked for.

    Returns:
        Figures, or the reason why this request has none: it failed, was cut, delivered nothing, or the wall clock was
        set while it ran.
    """
    count = count_tokens(trace, requested_tokens)
    delivering = _delivering(trace.events, count)
    shown = next((event for event in trace.events if event.has_output), None)
    error = trace.error
    if error is None and not trace.is_complete:
        error = "the stream is not complete"
    if error is None and trace.clock_step_s:
        error = f"the wall clock was set by {trace.clock_step_s:+.3f} s meanwhile, so its times mean nothing"
    if error is None and shown is None:
        error = "the answer holds no text"
    if error is None and shown is not None and shown.at_s < trace.sent_at_s:
        error = "the first output is stamped before the request was sent, so its times mean nothing"
    if error is not None or shown is None:
        return _result(trace, count, error=error, output_tokens=count.tokens if delivering else 0)

    ttft_s = shown.at_s - trace.sent_at_s
    last_s = max(event.at_s for event in delivering)
    rest = count.tokens - count.first_chunk_tokens
    # Tokens under one stamp were read at once, too late to tell how fast they were made.
    is_one_stamp = last_s <= shown.at_s
    tpot_s = (last_s - shown.at_s) / rest if rest > 0 and not is_one_stamp else None
    itl_s = tuple(b.at_s - a.at_s for a, b in itertools.pairwise(delivering))
    flags = list(count.flags)
    if rest > 0 and is_one_stamp:
        flags.append(Flag(kind="one stamp", text="all chunks arrived at the same moment, so TPOT is not known"))
    if not count.is_first_chunk_known and count.first_chunk_tokens > 1 and tpot_s is not None:
        flags.append(
            Flag(
                kind="first chunk",
                text=f"the first chunk holds about {count.first_chunk_tokens} tokens, judged by its share of the text; "
                "TPOT leaves them out",
            )
        )
    if requested_tokens is not None and count.tokens < requested_tokens:
        flags.append(
            Flag(kind="short answer", text=f"ended after {count.tokens:,} of {requested_tokens:,} tokens asked for")
        )
    stalls = _stalls(itl_s, delivering, count, trace)
    flags += [Flag(kind="stall", text=stall.text) for stall in stalls]
    cached = trace.usage.cached_tokens
    if cached:
        of_all = f" of {trace.usage.prompt_tokens:,}" if trace.usage.prompt_tokens is not None else ""
        flags.append(Flag(kind="cached prompt", text=f"{cached:,}{of_all} prompt tokens came from a cache"))
    flags += [Flag(kind=note, text=note) for note in trace.notes]
    return _result(
        trace,
        count,
        error=None,
        output_tokens=count.tokens,
        ttft_s=ttft_s,
        first_answer_s=_first_answer(trace),
        e2e_s=last_s - trace.sent_at_s,
        tpot_s=tpot_s,
        itl_s=itl_s,
        stalls=stalls,
        flags=tuple(flags),
    )


def _result(
    trace: StreamTrace,
    count: TokenCount,
    *,
    error: str | None,
    output_tokens: int,
    ttft_s: float | None = None,
    first_answer_s: float | None = None,
    e2e_s: float | None = None,
    tpot_s: float | None = None,
    itl_s: tuple[float, ...] = (),
    stalls: tuple[Stall, ...] = (),
    flags: tuple[Flag, ...] = (),
) -> RequestMetrics:
    return RequestMetrics(
        error=error,
        ttft_s=ttft_s,
        first_answer_s=first_answer_s,
        e2e_s=e2e_s,
        tpot_s=tpot_s,
        decode_tok_per_s=1 / tpot_s if tpot_s else None,
        itl_s=itl_s,
        output_tokens=output_tokens,
        usage_tokens=trace.usage.completion_tokens,
        counted_by=count.ledger,
        prompt_tokens=trace.usage.prompt_tokens,
        cached_tokens=trace.usage.cached_tokens,
        stalls=stalls,
        flags=flags,
    )


def _delivering(events: Sequence[StreamEvent], count: TokenCount) -> list[StreamEvent]:
    """Events that brought a token: by the count where it is known per event, else those that show something."""
    if count.by_event is None:
        return [event for event in events if event.has_output]
    return [event for event, n in zip(events, count.by_event, strict=True) if n > 0 or event.has_output]


def _first_answer(trace: StreamTrace) -> float | None:
    if not any(event.reasoning for event in trace.events):
        return None
    first = next((event for event in trace.events if event.text or event.tool_call), None)
    return first.at_s - trace.sent_at_s if first is not None else None


def _stalls(
    itl_s: Sequence[float], delivering: Sequence[StreamEvent], count: TokenCount, trace: StreamTrace
) -> tuple[Stall, ...]:
    if len(itl_s) < 3:
        return ()
    limit = max(MIN_STALL_S, STALL_RATIO * statistics.median(itl_s))
    stalls = []
    for position, gap_s in enumerate(itl_s):
        if gap_s - trace.read_lag_s < limit:
            continue
        if count.by_event is not None:
            before = sum(
                n
                for event, n in zip(trace.events, count.by_event, strict=True)
                if event.at_s <= delivering[position].at_s
            )
        else:
            before = round(count.tokens * (position + 1) / len(delivering))
        stalls.append(Stall(gap_s=gap_s, after_tokens=before, is_exact=count.by_event is not None))
    return tuple(stalls)
