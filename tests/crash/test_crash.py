"""Two thousand stories of lost power. ``make crash SEEDS=…`` runs more of them; one seed alone prints every step."""

import pytest

from tests.crash.simulation import run_seed

SEEDS = 2000
_AT_ONCE = 100


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_loss_of_power_keeps_flushed_records_and_leaves_others_whole_or_absent(first: int) -> None:
    power_cuts = sum(run_seed(seed).power_cuts for seed in range(first, first + _AT_ONCE))
    assert power_cuts > _AT_ONCE
