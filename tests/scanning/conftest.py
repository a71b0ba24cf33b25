"""Small tier with one topic of two partitions: records in the tier, and behind them some on the host alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tierd.scanning.arrow_reader import ArrowReader


@pytest.fixture
def small(tmp_path: Path) -> SmallTier:
    """Return ``orders-0`` with offsets 0 to 46, of which 40 and more are not in the tier, ``orders-1`` with 0 to 19."""
    made = SmallTier(tmp_path)
    made.append(20)
    made.roll()
    made.append(20)
    made.roll()
    made.append(20, number=1)
    made.roll(number=1)
    made.copy()
    made.append(7)
    made.log_dir.write_checkpoints()
    return made


@pytest.fixture
def tier(small: SmallTier) -> Iterator[ArrowReader]:
    """Return the open reader of ``small``."""
    with tierd.reader(small.installation.config_file) as opened:
        yield opened
