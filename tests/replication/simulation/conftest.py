"""Log output off: stories print no lines while they run."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def quiet() -> Iterator[None]:
    """Drop log lines: a story has hundreds of refused requests and broken connections."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(wrapper_class=before)
