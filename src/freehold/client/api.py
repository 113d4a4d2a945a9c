"""What is asked of a server and what came back, as values.

:class:`StreamTrace` is the raw truth of one streamed request: arrival time and content of every event. Everything else
(TTFT, TPOT …) is arithmetic on it in ``bench/``.

Does not do: networking (``client/stream.py``, ``client/openai.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from freehold.secret import Secret

__all__ = ["Completion", "Endpoint", "StreamEvent", "StreamTrace", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible API.

    Args:
        base_url: Address with the version prefix and no trailing slash: ``http://127.0.0.1:8080/v1``.
        model: Model name to send.
        api_key: Bearer token; None sends none.
    """

    base_url: str
    model: str
    api_key: Secret | None = field(default=None, compare=False)

    @property
    def root_url(self) -> str:
        """The address without ``/v1``, where engines put their own routes."""
        return self.base_url.removesuffix("/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The API's own count; None where it did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One server-sent event.

    Args:
        at_s: Arrival of its last byte, on the trace's clock (seconds).
        text: New answer text; may be empty.
        reasoning: New reasoning text; may be empty.
        token_ids: Ids of the new tokens where the server sends them.
        finish_reason: Why it ended, on the event that says so.
        has_usage: Whether this event carries the usage.
        tool_call: New text of a tool call (its name or arguments); may be empty.
        num_logprobs: Tokens whose log-probability the event lists; 0 where none were asked for.
        stated_tokens: Output tokens so far, where the server states a running count.
    """

    at_s: float
    text: str = ""
    reasoning: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    has_usage: bool = False
    tool_call: str = ""
    num_logprobs: int = 0
    stated_tokens: int | None = None

    @property
    def has_output(self) -> bool:
        """Whether it delivers something to read: answer, reasoning or a tool call. A bare role does not count."""
        return bool(self.text or self.reasoning or self.tool_call)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTrace:
    """One streamed request, whole.

    Args:
        sent_at_s: Just before the first byte of the request was handed to the kernel (seconds, wall clock of the
            kernel's receive stamps where those exist, so that both ends are comparable).
        ended_at_s: Arrival of the last byte.
        status: HTTP status; 0 when there was none.
        events: Every event, in order.
        usage: The API's count.
        timings: The engine's own timing fields, raw.
        is_complete: Whether the stream ended as the protocol says (``[DONE]`` or a finish reason and a clean end).
        error: What went wrong, one sentence; None when nothing did.
        stamp: How arrivals were stamped: ``kernel`` or ``user``.
        clock_step_s: By how much the wall clock was set forward or back meanwhile; 0 for a steady clock. Times of a
            trace with a step are not to be used.
        read_lag_s: The longest an arrival may have waited before the client read it: how far the client fell behind, by
            the kernel's stamps and by the time the thread waited for a processor. Kernel stamps are not affected by it
            until several events share one read; they then share the last one's stamp.
        connect_s: Connection set-up (TCP, and TLS where used), which is over before ``sent_at_s``.
        notes: What was odd but did not fail the request, one sentence each.
    """

    sent_at_s: float
    ended_at_s: float
    status: int
    events: tuple[StreamEvent, ...]
    usage: Usage = field(default_factory=Usage)
    timings: Mapping[str, float] = field(default_factory=dict)
    is_complete: bool
    error: str | None = None
    stamp: str = "user"
    clock_step_s: float = 0.0
    read_lag_s: float = 0.0
    connect_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(e.text for e in self.events)

    @property
    def reasoning(self) -> str:
        """The whole reasoning."""
        return "".join(e.reasoning for e in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One non-streamed answer."""

    text: str
    reasoning: str
    finish_reason: str | None
    usage: Usage
    raw: Mapping[str, object]
