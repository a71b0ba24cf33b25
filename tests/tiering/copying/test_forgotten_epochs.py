"""Epochs that a broker forgot below its log start, where that lies inside a segment that is to be copied."""

import pytest

from tierd.model import EpochEntry, Lineage
from tierd.tiering.copying.prepare import epoch_misfit, with_forgotten_epochs

Entries = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("lineage", "local", "seen", "expected"),
    [
        pytest.param([(0, 0), (6, 10)], [(6, 10)], [(6, 7)], [(0, 0), (6, 7)], id="the first local epoch began before"),
        pytest.param(
            [(0, 0), (6, 10), (8, 15)],
            [(6, 10), (8, 15)],
            [(4, 7), (6, 9), (8, 15)],
            [(0, 0), (4, 7), (6, 9), (8, 15)],
            id="an epoch without remaining records",
        ),
        pytest.param([(6, 10)], [(6, 10)], [(6, 7)], [(6, 10)], id="no known epoch below"),
        pytest.param([(0, 0), (6, 7)], [(6, 10)], [(6, 7)], [(0, 0), (6, 7)], id="an epoch known to the tier"),
        pytest.param([(0, 0)], [], [(6, 7)], [(0, 0)], id="no local lineage"),
    ],
)
def test_epochs_of_batches_below_the_log_start_complete_the_lineage(
    lineage: Entries, local: Entries, seen: Entries, expected: Entries
) -> None:
    epochs = tuple(EpochEntry(*entry) for entry in seen)
    whole = with_forgotten_epochs(Lineage.of(lineage), Lineage.of(local), epochs)
    assert whole == Lineage.of(expected)
    if local:
        assert epoch_misfit(epochs, whole) is None


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([(7, 7)], id="a later epoch than the first local one"),
        pytest.param([(4, 12)], id="an epoch that the broker remembers"),
    ],
)
def test_epochs_of_batches_of_another_branch_do_not_fit_the_completed_lineage(seen: Entries) -> None:
    lineage, local = Lineage.of([(0, 0), (6, 10)]), Lineage.of([(6, 10)])
    epochs = tuple(EpochEntry(*entry) for entry in seen)
    assert epoch_misfit(epochs, with_forgotten_epochs(lineage, local, epochs)) is not None
