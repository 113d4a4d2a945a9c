"""The reference of a checkpoint that ships with freehold is found by the checkpoint's hash."""

from __future__ import annotations

from freehold.verify.reference import find_reference, open_reference


def test_a_known_checkpoint_finds_its_reference() -> None:
    source = "embedded:smollm2-135m-instruct-q4_1"
    assert find_reference(open_reference(source).checkpoint_sha256) == source


def test_an_unknown_checkpoint_has_none() -> None:
    assert find_reference("0" * 64) is None
