"""The device ring: tests marked ``device`` run only with --device."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", action="store_true", help="run tests that need a CUDA GPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--device"):
        return
    skip = pytest.mark.skip(reason="needs a CUDA GPU: run with --device")
    for item in items:
        if "device" in item.keywords:
            item.add_marker(skip)
