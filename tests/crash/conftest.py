"""Stories that say nothing while they are told."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def quiet() -> Iterator[None]:
    """Every recovery says what it does; that takes longer than the recovery."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(wrapper_class=before)
