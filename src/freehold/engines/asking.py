"""How does a dialect ask a server something and survive any answer?

:func:`ask` never trusts the answer: it may be HTML, half a JSON document, or an error in one of four shapes. Routes a
server does not have are an ordinary result (:attr:`Answer.is_absent`), because dialects ask whether something exists.

Does not do: knowing any route or field (``data/engines/*_api.toml`` and the dialects).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from freehold.client.api import Endpoint
from freehold.errors import EngineError, PrerequisiteError
from freehold.world import World

__all__ = ["Answer", "as_float", "as_list", "as_map", "ask", "refused"]

# Not there, not allowed to be asked that way, refused as unknown, or not built in.
_ABSENT = frozenset({400, 403, 404, 405, 422, 501})
_SCORE_TIMEOUT_S = 300.0  # guess: one prompt of a few dozen tokens on the slowest machine that is still usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Args:
        status: HTTP status.
        body: The JSON object; empty when there was none.
        text: The raw text.
        problem: The server's own words about what went wrong; empty when nothing did.
        headers: Header fields, names in lower case.
    """

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    problem: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """Whether it is a good answer."""
        return self.status == 200

    @property
    def is_absent(self) -> bool:
        """Whether the server does not offer this, as opposed to having failed at it."""
        return self.status in _ABSENT


def ask(
    world: World,
    endpoint: Endpoint,
    route: str,
    payload: Mapping[str, object] | None = None,
    *,
    timeout_s: float = _SCORE_TIMEOUT_S,
) -> Answer:
    """GET a route, or POST a JSON payload to it.

    Args:
        world: Gives HTTP.
        endpoint: The server; its key is sent when it has one.
        route: Path below the server's root address; ``/v1/…`` is taken below the API's own base address.
        payload: JSON object to post; None makes it a GET.
        timeout_s: Longest silence in seconds.

    Raises:
        PrerequisiteError: Nothing answered, or the key is missing or wrong.
        EngineError: The server failed (5xx).
    """
    headers = {} if endpoint.api_key is None else {"Authorization": f"Bearer {endpoint.api_key.reveal()}"}
    url = endpoint.base_url + route.removeprefix("/v1") if route.startswith("/v1/") else endpoint.root_url + route
    method = "GET" if payload is None else "POST"
    reply = world.http(method, url, headers=headers, json=payload, timeout_s=timeout_s)
    text = reply.body.decode(errors="replace")
    parsed = _parse(reply.body)
    body = parsed if isinstance(parsed, dict) else {}
    problem = "" if reply.status == 200 else _problem(body, text)
    if reply.status in (401, 407):
        raise PrerequisiteError(
            f"{url} refuses without a valid key (HTTP {reply.status})",
            why=problem or "the server was started with an API key",
            fix="name the file that holds the key: `endpoint: {api_key_file: PATH}` in the recipe",
        )
    if reply.status >= 500 and reply.status != 501:
        raise EngineError(
            f"{url} failed with HTTP {reply.status}",
            why=problem or "the server gave no reason",
            fix="read the server's log; it may have run out of memory or lost a worker",
            facts={"status": reply.status},
        )
    return Answer(status=reply.status, body=body, text=text, problem=problem, headers=reply.headers)


def _parse(data: bytes) -> object:
    """JSON, None where it is none; half of a surrogate pair becomes U+FFFD, because no record can hold it."""
    try:
        parsed: object = json.loads(data)
        if b"\\ud" in data.lower():
            whole = json.dumps(parsed, ensure_ascii=False).encode("utf-8", "surrogatepass")
            parsed = json.loads(whole.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return parsed


def refused(what: str, answer: Answer) -> EngineError:
    """The error for an answer that should have been good but is a refusal or no answer at all.

    Args:
        what: What was asked, as the object of "the server refused": ``to score a prompt``.
        answer: What came back.
    """
    return EngineError(
        f"the server refused {what} (HTTP {answer.status})",
        why=answer.problem or f"its answer lacks what was asked for: {' '.join(answer.text.split())[:200]!r}",
        fix="check that the address is the right server, and what its log says about the request",
        facts={"status": answer.status},
    )


def _problem(body: Mapping[str, Any], text: str) -> str:
    """The message in an error answer, in whichever of the four usual fields it is; else the start of the text."""
    found: object = body.get("error", body.get("message", body.get("detail")))
    if isinstance(found, dict):
        found = found.get("message")
    return (found if isinstance(found, str) else " ".join(text.split()))[:300]


def as_map(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_float(value: object) -> float | None:
    """The value as a finite float, None if it is anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if abs(number) < float("inf") else None
