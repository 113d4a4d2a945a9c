"""A secret gets out through one door only."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from dataclasses import asdict

import pytest

from freehold.client.api import Endpoint
from freehold.secret import Secret

WORD = "hunter2-and-more"


def test_it_is_revealed_where_it_is_asked_for() -> None:
    assert Secret(WORD).reveal() == WORD


def test_no_way_of_printing_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(WORD)
    logging.getLogger("freehold.test").warning("key %s %r", secret, secret)
    texts = [str(secret), repr(secret), f"{secret}", f"{secret!r:>20}", f"{secret:>5}", caplog.text]
    texts.append(repr(Endpoint(base_url="http://127.0.0.1:1/v1", model="m", api_key=secret)))
    assert all(WORD not in text for text in texts)


def test_it_is_neither_hashed_nor_compared_nor_serialised() -> None:
    secret = Secret(WORD)
    for act in (
        lambda: hash(secret),
        lambda: secret == Secret(WORD),
        lambda: {secret},
        lambda: pickle.dumps(secret),
        lambda: copy.deepcopy(secret),
        lambda: json.dumps(secret),
        lambda: asdict(Endpoint(base_url="u", model="m", api_key=secret)),
    ):
        with pytest.raises(TypeError):
            act()


def test_it_cannot_become_an_argument() -> None:
    with pytest.raises(TypeError):
        "".join([Secret(WORD)])  # type: ignore[list-item]


def test_endpoints_are_compared_without_it() -> None:
    one = Endpoint(base_url="u", model="m", api_key=Secret("a"))
    assert one == Endpoint(base_url="u", model="m", api_key=Secret("b"))
