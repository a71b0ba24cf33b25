from uuid import UUID

import pytest

from tests.fakes.remote_segments import PARTITION
from tierd.errors import FencedError
from tierd.metadata import Claim, PartitionRow
from tierd.metadata.row import claimed_row

OURS = Claim(5, 1, UUID(int=1))


def owned_by(claim: Claim) -> PartitionRow:
    return PartitionRow(
        topic="orders", revision=8, claim=claim, log_start_offset=40, compacted_to=30, unknown={"later": 1}
    )


def test_a_partition_that_is_new_to_the_store_is_claimed_at_revision_one() -> None:
    row = claimed_row(None, OURS, PARTITION, held=False)
    assert row == PartitionRow(topic="orders", revision=1, claim=OURS)


@pytest.mark.parametrize(
    ("owner", "held", "granted"),
    [
        pytest.param(Claim(4, 2, UUID(int=2)), False, True, id="an older epoch of another broker"),
        pytest.param(Claim(4, 1, UUID(int=1)), False, True, id="an older epoch of ours"),
        pytest.param(Claim(5, 1, UUID(int=2)), False, True, id="our earlier process in this epoch"),
        pytest.param(Claim(5, 1, UUID(int=2)), True, False, id="our later process in this epoch"),
        pytest.param(OURS, False, True, id="ours, of unknown outcome"),
        pytest.param(OURS, True, True, id="ours, renewed"),
        pytest.param(Claim(5, 2, UUID(int=2)), False, False, id="another broker in this epoch"),
        pytest.param(Claim(6, 1, UUID(int=1)), False, False, id="a newer epoch of ours"),
        pytest.param(Claim(6, 2, UUID(int=2)), True, False, id="a newer epoch of another broker"),
    ],
)
def test_who_may_claim(owner: Claim, held: bool, granted: bool) -> None:
    if granted:
        row = claimed_row(owned_by(owner), OURS, PARTITION, held=held)
        assert (row.claim, row.revision, row.log_start_offset, row.compacted_to) == (OURS, 9, 40, 30)
        assert row.unknown == {"later": 1}
    else:
        with pytest.raises(FencedError, match=f"leader epoch {owner.leader_epoch} of broker {owner.broker_id}"):
            claimed_row(owned_by(owner), OURS, PARTITION, held=held)
