"""Which API is behind the address a person typed, which models does it offer, and what does one request answer?

Read :func:`open_endpoint`, then :func:`complete`.

Does not do: streaming (``client/stream.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from freehold.client.api import Completion, Endpoint, Usage
from freehold.client.deltas import error_message, read_usage
from freehold.errors import EngineError, InputError, PrerequisiteError
from freehold.secret import Secret
from freehold.world import HttpReply, World

__all__ = ["complete", "list_models", "normalise_url", "open_endpoint"]

_KNOWN_ROUTES = ("/chat/completions", "/completions", "/models")
_EXAMPLE = "write it like `http://127.0.0.1:8080/v1`"


def normalise_url(text: str) -> str:
    """The base address meant by what a person typed: ``localhost:8000/`` is ``http://localhost:8000/v1``.

    A scheme is added where none is, a route such as ``/chat/completions`` and a final slash are cut off, and ``/v1`` is
    added unless the path ends in a version already.

    Raises:
        InputError: It is no address, names another scheme, or carries a password.
    """
    typed = text.strip()
    url = typed if "://" in typed else f"http://{typed}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"not an address: {typed!r}", why=str(error), fix=_EXAMPLE) from None
    if parts.scheme.lower() not in ("http", "https"):
        raise InputError(
            f"an address of an unknown kind: {parts.scheme}://", why="an API is reached by http or https", fix=_EXAMPLE
        )
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of {host} carries a user name or password",
            why="addresses are written into records",
            fix="put the key into a file and name it with `--api-key-file`",
        )
    if parts.query or parts.fragment:
        raise InputError(
            f"the address of {host} carries a query",
            why="routes are appended to the address, so nothing can follow its path",
            fix="cut it off at the `?` or `#`; a key goes into a file that `--api-key-file` names",
        )
    if not host or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise InputError(f"not an address: {typed!r}", why="it names no host, or holds blanks", fix=_EXAMPLE)
    path = parts.path.rstrip("/")
    for route in _KNOWN_ROUTES:
        path = path.removesuffix(route)
    if not re.search(r"/v\d+[a-z0-9]*\Z", path):
        path += "/v1"
    name = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme.lower(), f"{name}:{port}" if port is not None else name, path, "", ""))


def list_models(world: World, base_url: str, key: Secret | None = None, *, timeout_s: float = 30.0) -> tuple[str, ...]:
    """Names of the models that a server offers, in its order; several names of one model count once.

    Args:
        world: How to reach it.
        base_url: Base address as :func:`normalise_url` gives it.
        key: Bearer token.
        timeout_s: Longest wait.

    Raises:
        PrerequisiteError: Nothing answers, or the server refuses the key.
        EngineError: What answers is no OpenAI-compatible API, or offers no model.
    """
    url = f"{base_url}/models"
    reply = world.http("GET", url, headers=_headers(key), timeout_s=timeout_s)
    entries = _read(reply, url).get("data")
    models: list[str] = []
    roots: set[str] = set()
    for entry in entries if isinstance(entries, list) else []:
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            continue
        root = entry.get("root")
        if isinstance(root, str) and root != name and root in roots:
            continue
        roots.add(root if isinstance(root, str) else name)
        models.append(name)
    if not models:
        raise EngineError(
            f"{url} lists no model",
            why="the server is an API without a loaded model, or it is still loading one",
            fix="load a model on the server, then try again",
        )
    return tuple(models)


def open_endpoint(world: World, url: str, key: Secret | None = None, *, model: str | None = None) -> Endpoint:
    """The API behind an address that a person typed, with the model to ask.

    Args:
        world: How to reach it.
        url: As typed.
        key: Bearer token.
        model: Name to use; None takes the only one there is.

    Raises:
        InputError: The address is none, the server has several models and none was named, or not the named one.
        PrerequisiteError: Nothing answers, or the server refuses the key.
        EngineError: What answers is no OpenAI-compatible API, or offers no model.
    """
    base_url = normalise_url(url)
    models = list_models(world, base_url, key)
    listed = ", ".join(models[:8]) + (f" and {len(models) - 8} more" if len(models) > 8 else "")
    if model is None:
        if len(models) > 1:
            raise InputError(
                f"{base_url} offers {len(models)} models",
                why=f"it is not clear which one is meant: {listed}",
                fix=f"name one, such as `--model {models[0]}`",
                facts={"models": list(models)},
            )
        model = models[0]
    elif model not in models:
        raise InputError(
            f"{base_url} has no model {model!r}",
            why=f"it offers {listed}",
            fix=f"name one of them, such as `--model {models[0]}`",
            facts={"models": list(models)},
        )
    return Endpoint(base_url=base_url, model=model, api_key=key)


def complete(
    world: World, endpoint: Endpoint, path: str, payload: Mapping[str, object], *, timeout_s: float = 300.0
) -> Completion:
    """One answer in one piece.

    Args:
        world: How to reach it.
        endpoint: The server; its model is sent unless the payload names one.
        path: Route below the version prefix: ``/completions`` or ``/chat/completions``.
        payload: The request.
        timeout_s: Longest wait.

    Raises:
        PrerequisiteError: Nothing answers in time, or the server refuses the key.
        EngineError: The server refused, failed, or answered something that is no completion.
    """
    url = f"{endpoint.base_url}{path}"
    body = {"model": endpoint.model, **payload, "stream": False}
    reply = world.http("POST", url, headers=_headers(endpoint.api_key), json=body, timeout_s=timeout_s)
    answer = _read(reply, url)
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if choice is None:
        raise EngineError(
            f"{url} answered without a choice",
            why=error_message(answer) or f"the answer holds {', '.join(sorted(answer)[:6]) or 'nothing'}",
            fix="look into the server's log",
        )
    message = choice.get("message")
    words = message if isinstance(message, dict) else choice
    text = words.get("content") if isinstance(message, dict) else words.get("text")
    reasoning = words.get("reasoning_content") or words.get("reasoning")
    finish = choice.get("finish_reason")
    return Completion(
        text=text if isinstance(text, str) else "",
        reasoning=reasoning if isinstance(reasoning, str) else "",
        finish_reason=finish if isinstance(finish, str) else None,
        usage=read_usage(answer.get("usage")) or Usage(),
        raw=answer,
    )


def _headers(key: Secret | None) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if key is not None:
        value = key.reveal()
        if not value or not value.isascii() or not value.isprintable():
            raise InputError(
                "the API key cannot be sent",
                why="it is empty, or holds a character that HTTP does not allow, such as a line break",
                fix="check the file that `--api-key-file` names: one line, printable ASCII",
            )
        headers["Authorization"] = f"Bearer {value}"
    return headers


def _read(reply: HttpReply, url: str) -> dict[str, Any]:
    """The JSON object of a good answer; anything else becomes an error that says what it is."""
    status = reply.status
    beginning = reply.body[:256].lstrip().lower()
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_html = kind == "text/html" or beginning.startswith((b"<!doctype", b"<html"))
    try:
        body = None if is_html else json.loads(reply.body)
    except (ValueError, RecursionError):
        body = None
    words = error_message(body) if isinstance(body, dict) else None
    if status in (401, 403):
        raise PrerequisiteError(
            f"{url} refuses the key ({status})",
            why=words or "the server wants an API key, or another one",
            fix="name the file that holds the key with `--api-key-file`",
        )
    if 300 <= status < 400:
        target = reply.headers.get("location", "")
        raise EngineError(
            f"{url} redirects ({status})",
            why="requests are not sent on to another address, so that what is measured is what was named",
            fix=f"use that address: {target}" if target else "ask the server's operator for its address",
        )
    if is_html:
        raise EngineError(
            f"{url} answered with an HTML page ({status})",
            why="this is a web site or a login page, not an OpenAI-compatible API",
            fix="check the address; it usually ends in /v1",
        )
    if status != 200:
        raise EngineError(
            f"{url} answered {status}",
            why=words or " ".join(reply.body[:200].decode("utf-8", "replace").split()) or "without a reason",
            fix="check that the server has this route and is ready" if status == 404 else "look into the server's log",
            facts={"status": status},
        )
    if not isinstance(body, dict):
        found = " ".join(reply.body[:80].decode("utf-8", "replace").split())
        raise EngineError(
            f"{url} answered something that is no JSON object",
            why=f"it begins with {found!r}" if found else "the answer is empty",
            fix="check that the address is that of an OpenAI-compatible API",
        )
    return body
