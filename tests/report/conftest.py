"""Lets the tests of this folder import the builder of sample runs beside them, and renders each kind of run once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sample_run import Shape, make_run

from freehold.report.load import RunRecords, load_run


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunRecords]:
    """Records of a sample run of a given shape, read back from its folder."""

    @cache
    def read(shape: Shape) -> RunRecords:
        return load_run(make_run(tmp_path_factory.mktemp("sample") / "run", shape))

    return lambda shape=None: read(shape or Shape())


@pytest.fixture(scope="session")
def page(records: Callable[..., RunRecords]) -> Callable[..., str]:
    """The page of a sample run of a given shape; each is rendered once, charts cost half a second."""
    from freehold.report.page import render_html

    @cache
    def render(shape: Shape) -> str:
        return render_html(records(shape))

    return lambda shape=None: render(shape or Shape())
