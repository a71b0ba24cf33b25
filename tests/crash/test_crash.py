"""Two thousand stories of lost power. ``make crash SEEDS=…`` tells more of them, and any single one step by step."""

import pytest

from tests.crash.simulation import run_seed

SEEDS = 2000
_AT_ONCE = 100


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_no_loss_of_power_loses_what_was_flushed_or_tears_what_was_not(first: int) -> None:
    power_cuts = sum(run_seed(seed).power_cuts for seed in range(first, first + _AT_ONCE))
    assert power_cuts > _AT_ONCE
