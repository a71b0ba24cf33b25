from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.remote_segments import PARTITION
from tierd.errors import FencedError
from tierd.metadata import Claim, PartitionRow
from tierd.metadata.rows.partition_row import claimed_row

OURS = Claim(5, 1, UUID(int=1))


def owned_by(claim: Claim) -> PartitionRow:
    return PartitionRow(
        topic="orders", revision=8, claim=claim, log_start_offset=40, compacted_to=30, unknown={"later": 1}
    )


def test_a_partition_that_is_new_to_the_store_is_claimed_at_revision_one() -> None:
    row = claimed_row(None, OURS, PARTITION, held=False)
    assert row == PartitionRow(topic="orders", revision=1, claim=OURS, only_broker_id=1)


def test_row_names_the_only_broker_that_ever_claimed_the_partition() -> None:
    row = claimed_row(None, OURS, PARTITION, held=False)
    row = claimed_row(row, OURS._replace(leader_epoch=6), PARTITION, held=False)
    assert row.only_broker_id == 1
    by_other = claimed_row(row, OURS._replace(leader_epoch=7, broker_id=2), PARTITION, held=False)
    assert by_other.only_broker_id is None
    assert claimed_row(by_other, OURS._replace(leader_epoch=8), PARTITION, held=False).only_broker_id is None


def test_row_with_unknown_earlier_claims_names_no_only_broker() -> None:
    later = OURS._replace(leader_epoch=6)
    assert claimed_row(owned_by(OURS), later, PARTITION, held=False).only_broker_id is None
    by_earlier_tierd = replace(owned_by(OURS._replace(broker_id=2)), only_broker_id=1)
    assert claimed_row(by_earlier_tierd, later, PARTITION, held=False).only_broker_id is None
    assert claimed_row(None, OURS, PARTITION, held=True, above=7).only_broker_id is None, "the store lost rows"


@pytest.mark.parametrize(
    ("owner", "held", "granted"),
    [
        pytest.param(Claim(4, 2, UUID(int=2)), False, True, id="an older epoch of another broker"),
        pytest.param(Claim(4, 1, UUID(int=1)), False, True, id="an older epoch of this broker"),
        pytest.param(Claim(5, 1, UUID(int=2)), False, True, id="an earlier process of this broker in this epoch"),
        pytest.param(Claim(5, 1, UUID(int=2)), True, False, id="a later process of this broker in this epoch"),
        pytest.param(OURS, False, True, id="the same claim, of unknown outcome"),
        pytest.param(OURS, True, True, id="the same claim, renewed"),
        pytest.param(Claim(5, 2, UUID(int=2)), False, False, id="another broker in this epoch"),
        pytest.param(Claim(6, 1, UUID(int=1)), False, False, id="a newer epoch of this broker"),
        pytest.param(Claim(6, 2, UUID(int=2)), True, False, id="a newer epoch of another broker"),
    ],
)
def test_claim_is_granted_or_fenced_by_epoch_broker_and_session(owner: Claim, held: bool, granted: bool) -> None:
    if granted:
        row = claimed_row(owned_by(owner), OURS, PARTITION, held=held)
        assert (row.claim, row.revision, row.log_start_offset, row.compacted_to) == (OURS, 9, 40, 30)
        assert row.unknown == {"later": 1}
    else:
        with pytest.raises(FencedError, match=f"leader epoch {owner.leader_epoch} of broker {owner.broker_id}"):
            claimed_row(owned_by(owner), OURS, PARTITION, held=held)
