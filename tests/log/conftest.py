"""Fixtures of all tests of logs."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _files_of_unreachable_logs_are_closed() -> Iterator[None]:
    """Collect garbage after a module: logs that are not closed hold descriptors, and a full collection is rare."""
    yield
    gc.collect()
