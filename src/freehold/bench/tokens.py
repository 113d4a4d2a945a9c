"""How many tokens did a stream deliver, and who says so? Read :func:`count_tokens`.

Chunks are not tokens, and a usage field can be wrong. The ledgers, in the order in which they are believed:

1. what the stream itself lists token by token: ids, or entries of log-probabilities;
2. the usage, if it is possible: not less than one token per chunk with output, not more than was asked for;
3. a running count beside the chunks;
4. the bounds themselves.

Every contradiction is named in :attr:`TokenCount.flags`. What no client can see from the outside is a usage that is
wrong but possible, in a stream that lists nothing: ids or log-probabilities have to be asked for.

Does not do: times (``bench/metrics.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from freehold.client.api import StreamEvent, StreamTrace

__all__ = ["Flag", "TokenCount", "count_tokens"]

Ledger = Literal["token ids", "log-probabilities", "usage", "running count", "requested length", "chunks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something that looks wrong with a request: a word to group by, and the sentence."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """Tokens of one answer.

    Args:
        tokens: How many were delivered.
        ledger: Who says so.
        by_event: Tokens of each event of the trace, where they are known.
        first_chunk_tokens: Tokens delivered up to and with the first chunk that shows output.
        is_first_chunk_known: Whether that is counted; else it is judged by the chunk's share of the text.
        flags: Contradictions between the ledgers.
    """

    tokens: int
    ledger: Ledger
    by_event: tuple[int, ...] | None
    first_chunk_tokens: int
    is_first_chunk_known: bool
    flags: tuple[Flag, ...] = ()


def count_tokens(trace: StreamTrace, requested_tokens: int | None = None) -> TokenCount:
    """Count the tokens of an answer.

    Args:
        trace: The answer; of one that was cut, what arrived is counted.
        requested_tokens: The limit that was asked for (``max_tokens``), None if there was none.
    """
    chunks = sum(event.has_output for event in trace.events)
    usage = trace.usage.completion_tokens
    flags: list[Flag] = []
    listed, ledger = _listed(trace.events)
    running = _running(trace.events)
    tokens: int
    if listed is not None and ledger is not None:
        tokens = sum(listed)
        if usage is not None and usage != tokens and trace.is_complete:
            flags.append(_lie(usage, tokens, f"the stream lists {tokens:,} ({ledger})"))
    else:
        tokens, ledger = _from_bounds(trace, chunks, requested_tokens, running, flags)
    stated = trace.timings.get("predicted_n")
    if stated is not None and usage is not None and round(stated) != usage and trace.is_complete:
        flags.append(
            Flag(
                kind="two counts",
                text=f"the server contradicts itself: {usage:,} tokens in `usage`, {stated:,.0f} in `timings`",
            )
        )
    by_event = listed or running
    if by_event is None and chunks == tokens:
        by_event = tuple(int(event.has_output) for event in trace.events)
    first, is_known = _first_chunk(trace.events, by_event, tokens)
    return TokenCount(
        tokens=tokens,
        ledger=ledger,
        by_event=by_event,
        first_chunk_tokens=first,
        is_first_chunk_known=is_known,
        flags=tuple(flags),
    )


def _lie(usage: int, tokens: int, evidence: str) -> Flag:
    share = f" ({(usage - tokens) / tokens * 100:+.0f} %)" if tokens else ""
    return Flag(kind="false usage", text=f"`usage` states {usage:,} tokens{share}, but {evidence}")


def _from_bounds(
    trace: StreamTrace,
    chunks: int,
    requested: int | None,
    running: Sequence[int] | None,
    flags: list[Flag],
) -> tuple[int, Ledger]:
    """The count of a stream that lists nothing: the usage, if it lies between what is certain."""
    usage = trace.usage.completion_tokens
    stops_by_length = trace.is_complete and any(event.finish_reason == "length" for event in trace.events)
    is_over = requested is not None and chunks > requested
    if usage is not None and requested is not None and is_over:
        # More chunks than the limit allows tokens: either the limit was ignored, or chunks are finer than tokens.
        if usage >= chunks:
            flags.append(Flag(kind="long answer", text=f"{usage:,} tokens although {requested:,} was the limit"))
        else:
            flags.append(Flag(kind="fine chunks", text=f"{chunks:,} chunks for {usage:,} tokens: ITL is per chunk"))
        return usage, "usage"
    if usage is not None and usage < chunks:
        flags.append(_lie(usage, chunks, f"{chunks:,} chunks with output hold at least as many"))
    elif usage is not None and requested is not None and usage > requested:
        flags.append(_lie(usage, requested, f"{requested:,} was the limit"))
    elif usage is not None:
        return usage, "usage"
    elif trace.is_complete:
        flags.append(Flag(kind="no usage", text="the server states no usage; tokens are counted by other means"))
    if running is not None and chunks <= sum(running) <= (requested if requested is not None else sum(running)):
        return sum(running), "running count"
    if requested is not None and not is_over and stops_by_length:
        # It was ended by its limit, so it reached it.
        return requested, "requested length"
    if trace.is_complete:
        flags.append(Flag(kind="lower bound", text="tokens are counted as chunks: there may be more, never fewer"))
    return chunks, "chunks"


def _listed(
    events: Sequence[StreamEvent],
) -> tuple[tuple[int, ...], Ledger] | tuple[None, None]:
    """Tokens per event as the stream lists them; None unless every event with output lists some."""
    ledgers: tuple[tuple[Ledger, Callable[[StreamEvent], int]], ...] = (
        ("token ids", lambda event: len(event.token_ids)),
        ("log-probabilities", lambda event: event.num_logprobs),
    )
    for ledger, count in ledgers:
        counts = tuple(count(event) for event in events)
        if any(counts) and all(n > 0 for n, event in zip(counts, events, strict=True) if event.has_output):
            return counts, ledger
    return None, None


def _running(events: Sequence[StreamEvent]) -> tuple[int, ...] | None:
    """Tokens per event from a running count; None unless every event with output states one and it never falls."""
    counts: list[int] = []
    total = 0
    is_stated = False
    for event in events:
        if event.stated_tokens is None:
            if event.has_output:
                return None
            counts.append(0)
            continue
        if event.stated_tokens < total:
            return None
        is_stated = True
        counts.append(event.stated_tokens - total)
        total = event.stated_tokens
    return tuple(counts) if is_stated else None


def _first_chunk(events: Sequence[StreamEvent], by_event: Sequence[int] | None, tokens: int) -> tuple[int, bool]:
    position = next((i for i, event in enumerate(events) if event.has_output), None)
    if position is None:
        return 0, True
    if by_event is not None:
        return max(1, sum(by_event[: position + 1])), True
    sizes = [len(event.text) + len(event.reasoning) + len(event.tool_call) for event in events]
    return max(1, round(tokens * sizes[position] / sum(sizes))), False
