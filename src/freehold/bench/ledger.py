"""Why do the client's count, the API's usage and the engine's own counter differ? Read :func:`explain_gap`.

Does not do: asking the engine (``bench/run.py`` does, through the dialect), or counting (``bench/tokens.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from freehold.evidence import Evidence
from freehold.records.bench import CounterGap

__all__ = ["Window", "explain_gap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The engine's cumulative counters before and after some requests; None where it has none."""

    before: Mapping[str, float] | None
    after: Mapping[str, float] | None


def explain_gap(
    *,
    windows: Sequence[Window],
    client_tokens: int,
    usage_tokens: int,
    requests: int,
    requests_without_usage: int = 0,
    failed_tokens: int = 0,
    warmup_tokens: int = 0,
    date: str | None = None,
) -> CounterGap:
    """Set the three ledgers of an arm side by side and say why they differ.

    Args:
        windows: Counter readings around each block of the arm.
        client_tokens: Tokens the client accepted as delivered.
        usage_tokens: Sum of the usage fields.
        requests: Requests that were sent in the windows, failed ones included.
        requests_without_usage: Finished requests whose answer had no usage.
        failed_tokens: Tokens that failed requests delivered before they failed; not in the other two counts.
        warmup_tokens: Tokens of the warm-up just before the first window.
        date: When.
    """
    client = Evidence.measured(client_tokens, "tokens", source="sum over finished streams, cross-checked", date=date)
    if requests_without_usage and not usage_tokens:
        usage = Evidence.not_measured("the server states no usage", "tokens")
    else:
        usage = Evidence.measured(usage_tokens, "tokens", source="sum of the API's usage fields", date=date)
    sentences = [_compare_usage(client_tokens, usage_tokens, requests_without_usage)]
    delta, reason = _difference(windows)
    if "output_tokens" not in delta:
        server = Evidence.not_measured(reason or "the engine does not count output tokens", "tokens")
        sentences.append(f"The engine's own counter: {server.reason}.")
    else:
        counted = round(delta["output_tokens"])
        server = Evidence.measured(counted, "tokens", source="difference of the engine's counter", date=date)
        sentences.append(
            _compare_counter(
                counted - client_tokens,
                counted=counted,
                client_tokens=client_tokens,
                usage_tokens=usage_tokens,
                delta=delta,
                requests=requests,
                failed_tokens=failed_tokens,
                warmup_tokens=warmup_tokens,
            )
        )
    return CounterGap(
        client_tokens=client, usage_tokens=usage, server_tokens=server, explanation=" ".join(filter(None, sentences))
    )


def _difference(windows: Sequence[Window]) -> tuple[dict[str, float], str | None]:
    """What each counter gained over all windows, or why that is unknown."""
    delta: dict[str, float] = {}
    if not windows:
        return {}, "it was not asked"
    for window in windows:
        if window.before is None or window.after is None:
            return {}, "the engine has none, or did not answer"
        for name, after in window.after.items():
            gained = after - window.before.get(name, 0.0)
            if gained < 0:
                return {}, "it went back during the measurement, so the engine was restarted or reset"
            delta[name] = delta.get(name, 0.0) + gained
    return delta, None


def _compare_usage(client: int, usage: int, without: int) -> str:
    if without:
        return f"{_requests(without)} came without usage."
    if usage == client:
        return "The usage field agrees with the stream."
    return f"The usage field states {usage:,} tokens, {_signed(usage - client, client)} what the streams delivered."


def _compare_counter(
    gap: int,
    *,
    counted: int,
    client_tokens: int,
    usage_tokens: int,
    delta: Mapping[str, float],
    requests: int,
    failed_tokens: int,
    warmup_tokens: int,
) -> str:
    """The cause that fits the gap, the certain ones first."""
    if gap == 0:
        return "The engine's own counter agrees."
    start = f"The engine counted {counted:,} tokens, {_signed(gap, client_tokens)} the client:"
    foreign = round(delta["requests"]) - requests if "requests" in delta else 0
    rejected = round(delta.get("draft_tokens", 0.0) - delta.get("accepted_tokens", 0.0))
    if foreign > 0:
        return f"{start} it also finished {_requests(foreign)} of other clients."
    if failed_tokens and gap == failed_tokens:
        return f"{start} just what failed requests had delivered before they failed."
    if gap == usage_tokens - client_tokens:
        return f"{start} just what the usage field states, so the engine counts as its API does."
    if warmup_tokens and gap == warmup_tokens:
        return f"{start} just the warm-up, which it booked late."
    if rejected > 0 and gap == rejected:
        return f"{start} just the drafted tokens that were rejected."
    if requests and abs(gap) == requests:
        if gap < 0:
            return f"{start} one per request, the first token, which comes from the prefill."
        return f"{start} one per request, the end token, which is not delivered."
    if failed_tokens and gap > 0:
        return f"{start} failed requests delivered at least {failed_tokens:,} of them; the engine ran on for the rest."
    if gap > 0:
        return f"{start} not explained; other clients, if there were any, would be in it."
    return f"{start} not explained; it counts fewer than arrived."


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def _signed(gap: int, whole: int) -> str:
    share = f" ({abs(gap) / whole * 100:.1f} %)" if whole else ""
    return f"{abs(gap):,}{share} {'more' if gap > 0 else 'fewer'} than"
