"""Two thousand stories of lost power. ``make crash SEEDS=…`` tells more of them, and any single one step by step."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.crash.simulation import run_seed

SEEDS = 2000
_AT_ONCE = 100


@pytest.fixture
def quiet() -> Iterator[None]:
    """Every recovery says what it does; that takes longer than the recovery."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(wrapper_class=before)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_no_loss_of_power_loses_what_was_flushed_or_tears_what_was_not(first: int) -> None:
    power_cuts = sum(run_seed(seed).power_cuts for seed in range(first, first + _AT_ONCE))
    assert power_cuts > _AT_ONCE
