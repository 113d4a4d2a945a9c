"""Lets the tests of this folder import the replayed server of ``tests/engines``, and gives the stored reference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from freehold.verify.reference import Reference, open_reference

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engines"))


@pytest.fixture(scope="session")
def smollm2_reference() -> Reference:
    """The reference that ships with freehold."""
    return open_reference("embedded:smollm2-135m-instruct-q4_1")
