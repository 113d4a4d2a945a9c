"""Which request does this server take, and what exactly is sent? Read :func:`choose_style`, then :func:`build_payload`.

A raw completion is preferred: the prompt begins with the nonce, and nothing of the server's own stands before it. A
server without that route is asked through its chat route, the nonce first in the system message, which takes the place
of a default one; if its template knows no system message, first in the user's.

Does not do: measuring.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from freehold.bench.prompts import Prompt
from freehold.client.api import Endpoint
from freehold.client.stream import stream
from freehold.errors import EngineError, PrerequisiteError

__all__ = ["Style", "build_payload", "choose_style"]


class Style(StrEnum):
    """Ways to ask, the preferred one first."""

    COMPLETION = "completion"
    CHAT_SYSTEM = "chat, nonce in the system message"
    CHAT_USER = "chat, nonce in the user's message"

    @property
    def path(self) -> str:
        """Route below the version prefix."""
        return "/completions" if self is Style.COMPLETION else "/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    style: Style
    status: int
    error: str


def build_payload(
    style: Style,
    endpoint: Endpoint,
    prompt: Prompt,
    *,
    output_tokens: int,
    fields: Mapping[str, object],
    seed: int,
) -> dict[str, object]:
    """A streamed, greedy request with its usage.

    Args:
        style: How to ask.
        endpoint: Names the model.
        prompt: What to ask.
        output_tokens: Length of the answer.
        fields: What the dialect adds to fix that length.
        seed: Sent for servers that sample in spite of temperature 0.
    """
    payload: dict[str, object] = {
        "model": endpoint.model,
        "max_tokens": output_tokens,
        "temperature": 0,
        "seed": seed % 2**31,
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }
    text = prompt.text.removeprefix(prompt.nonce).lstrip("\n")
    match style:
        case Style.COMPLETION:
            payload["prompt"] = prompt.text
        case Style.CHAT_SYSTEM:
            payload["messages"] = [
                {"role": "system", "content": f"{prompt.nonce}\nContinue the user's text."},
                {"role": "user", "content": text},
            ]
        case Style.CHAT_USER:
            payload["messages"] = [{"role": "user", "content": f"{prompt.nonce}\nContinue this text:\n\n{text}"}]
    return payload


def choose_style(
    endpoint: Endpoint,
    prompt: Prompt,
    *,
    fields: Mapping[str, object],
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> Style:
    """The first way to ask that this server answers, found by one request of a single token.

    Args:
        endpoint: The server.
        prompt: What to ask.
        fields: What the dialect adds for a single token.
        timeout_s: Longest silence.
        tls: Settings for ``https``.

    Raises:
        PrerequisiteError: The server cannot be reached, or refuses the key.
        EngineError: It answers none of them.
    """
    attempts: list[_Attempt] = []
    for style in Style:
        payload = build_payload(style, endpoint, prompt, output_tokens=1, fields=fields, seed=0)
        trace = stream(endpoint, style.path, payload, timeout_s=timeout_s, tls=tls)
        if trace.is_complete:
            return style
        error = trace.error or "the stream is not complete"
        if trace.status == 0 and not attempts:
            raise PrerequisiteError(
                f"{endpoint.base_url} cannot be measured",
                why=error,
                fix="check that the server runs and that the address and port are right",
            )
        if trace.status in (401, 403):
            raise PrerequisiteError(
                f"{endpoint.base_url} refuses the key ({trace.status})",
                why=error,
                fix="name the file that holds the key with `--api-key-file`",
            )
        attempts.append(_Attempt(style=style, status=trace.status, error=error))
    raise EngineError(
        f"{endpoint.base_url} answers no streamed request",
        why="; ".join(f"{a.style.path}: {a.error}" for a in attempts),
        fix="ask the server for one answer by hand, and look into its log",
        facts={"attempts": [{"path": a.style.path, "status": a.status, "error": a.error} for a in attempts]},
    )
