from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from freehold.client.api import Endpoint, Usage
from freehold.client.openai import complete, list_models, normalise_url, open_endpoint
from freehold.errors import EngineError, FreeholdError, InputError, PrerequisiteError
from freehold.secret import Secret
from freehold.world import LocalWorld

Serve = Callable[..., AbstractContextManager[Endpoint]]
WORLD = LocalWorld()


def answering(body: object, status: int = 200, kind: str = "application/json", more: str = "") -> Callable[..., None]:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def answer(connection: socket.socket, _: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
        connection.sendall(head.encode() + data)

    return answer


def models(*names: str) -> dict[str, object]:
    return {"object": "list", "data": [{"id": name} for name in names]}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("localhost:8000/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1"),
        ("HTTPS://API.Example/v1/models", "https://api.example/v1"),
        ("  http://[::1]:80  ", "http://[::1]:80/v1"),
        ("https://h.example/openai/v1beta", "https://h.example/openai/v1beta"),
        ("https://h.example/api/paas/v4/completions/", "https://h.example/api/paas/v4"),
        ("https://h.example/serving", "https://h.example/serving/v1"),
    ],
)
def test_an_address_as_typed_becomes_a_base_address(typed: str, meant: str) -> None:
    assert normalise_url(typed) == meant
    assert normalise_url(meant) == meant


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "not an address"),
        ("http://", "not an address"),
        ("ftp://h/v1", "unknown kind: ftp"),
        ("http://h:99999", "not an address"),
        ("http://a b/v1", "not an address"),
        ("http://user:pw@h/v1", "carries a user name or password"),
        ("http://h/v1?key=abc", "carries a query"),
        ("http://[::1", "not an address"),
    ],
)
def test_what_is_no_address_is_refused(typed: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        normalise_url(typed)
    assert "pw" not in caught.value.what + caught.value.why
    assert "abc" not in caught.value.what + caught.value.why


def test_the_only_model_is_taken(serve: Serve) -> None:
    with serve(answering(models("smollm2"))) as endpoint:
        got = open_endpoint(WORLD, endpoint.root_url.removeprefix("http://"), Secret("k"))
    assert (got.base_url, got.model) == (endpoint.base_url, "smollm2")
    assert got.api_key is not None


def test_two_names_of_one_model_are_one(serve: Serve) -> None:
    body = {"data": [{"id": "a", "root": "org/m"}, {"id": "b", "root": "org/m"}, {"id": "c", "root": "c"}, {"x": 1}, 3]}
    with serve(answering(body)) as endpoint:
        assert list_models(WORLD, endpoint.base_url) == ("a", "c")


def test_among_several_models_one_has_to_be_named(serve: Serve) -> None:
    with serve(answering(models(*(f"m{i}" for i in range(10))))) as endpoint:
        with pytest.raises(InputError, match="offers 10 models") as caught:
            open_endpoint(WORLD, endpoint.base_url)
        assert "and 2 more" in caught.value.why
        assert "--model m0" in caught.value.fix
        assert open_endpoint(WORLD, endpoint.base_url, model="m9").model == "m9"
        with pytest.raises(InputError, match="has no model 'x'"):
            open_endpoint(WORLD, endpoint.base_url, model="x")


@pytest.mark.parametrize(
    ("handler", "error", "words"),
    [
        (answering("<html>hi</html>", kind="text/html"), EngineError, "HTML page"),
        (answering(" <!DOCTYPE html>", 404, kind="text/plain"), EngineError, "HTML page"),
        (answering("hello", kind="text/plain"), EngineError, "no JSON object"),
        (answering("", kind="text/plain"), EngineError, "no JSON object"),
        (answering([1, 2]), EngineError, "no JSON object"),
        (answering("[" * 50_000), EngineError, "no JSON object"),
        (answering(models()), EngineError, "lists no model"),
        (answering({"data": "x"}), EngineError, "lists no model"),
        (answering({"error": {"message": "loading"}}, 503), EngineError, "answered 503"),
        (answering({"detail": "Not Found"}, 404), EngineError, "answered 404"),
        (answering({}, 401), PrerequisiteError, "refuses the key"),
        (answering({}, 308, more="Location: http://x.example/v1\r\n"), EngineError, "redirects"),
        (lambda connection, _: connection.sendall(b"SSH-2.0\r\n"), PrerequisiteError, "no answer from"),
    ],
)
def test_what_is_no_api_is_explained(
    serve: Serve, handler: Callable[..., None], error: type[FreeholdError], words: str
) -> None:
    with serve(handler) as endpoint, pytest.raises(error, match=words) as caught:
        open_endpoint(WORLD, endpoint.base_url)
    assert caught.value.why
    assert caught.value.fix
    if words == "refuses the key":
        assert "--api-key-file" in caught.value.fix
    if words == "redirects":
        assert "http://x.example/v1" in caught.value.fix


def test_a_chat_answer_is_read(serve: Serve) -> None:
    body = {
        "choices": [{"message": {"content": "hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    with serve(answering(body)) as endpoint:
        got = complete(WORLD, endpoint, "/chat/completions", {"messages": []})
    assert (got.text, got.reasoning, got.finish_reason) == ("hi", "hm", "stop")
    assert got.usage == Usage(prompt_tokens=3, completion_tokens=2)


def test_a_request_carries_the_model_and_asks_for_one_piece(serve: Serve) -> None:
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        answering({"choices": [{"text": "x", "finish_reason": "length"}]})(connection, request)

    with serve(answer) as endpoint:
        keyed = Endpoint(base_url=endpoint.base_url, model="m", api_key=Secret("k"))
        got = complete(WORLD, keyed, "/completions", {"prompt": "a", "stream": True})
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert b"Authorization: Bearer k" in head
    assert json.loads(body) == {"model": "m", "prompt": "a", "stream": False}
    assert (got.text, got.usage) == ("x", Usage())


@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"choices": [3]}, {"object": "error", "message": "no such model"}]
)
def test_an_answer_without_a_choice_is_an_error(serve: Serve, body: dict[str, object]) -> None:
    with serve(answering(body)) as endpoint, pytest.raises(EngineError, match="without a choice"):
        complete(WORLD, endpoint, "/completions", {})


@pytest.mark.parametrize("key", ["", "a\nb", "ключ"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="the API key cannot be sent") as caught:
        list_models(WORLD, "http://127.0.0.1:1/v1", Secret(key))
    assert not key or key not in caught.value.what + caught.value.why + caught.value.fix
