"""The power fails at every moment of a round of the log cleaner: no live value is lost, no deleted one returns."""

from itertools import count

import pytest

from tests.crash.cleaning import run_cleaning_story

SEEDS = 4


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_loss_of_power_at_any_moment_of_a_round_leaves_every_key_with_its_latest_value(seed: int) -> None:
    moments = 0
    for moment in count(1 + seed % 4, 4):  # each seed takes other moments
        if not run_cleaning_story(seed, moment):
            break
        moments += 1
    assert moments > 10
