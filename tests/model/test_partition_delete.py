import pytest

from tests.fakes.remote_segments import PARTITION
from tierd.errors import InvalidSegmentTransitionError
from tierd.model import RemotePartitionDeleteMetadata, RemotePartitionDeleteState

MARKED, STARTED, FINISHED = RemotePartitionDeleteState
LEGAL = {
    (None, MARKED),
    (MARKED, MARKED),
    (MARKED, STARTED),
    (STARTED, STARTED),
    (STARTED, FINISHED),
    (FINISHED, FINISHED),
}


def test_numbers_of_the_delete_states_are_those_of_kafka() -> None:
    assert [state.value for state in RemotePartitionDeleteState] == [0, 1, 2]


@pytest.mark.spec("remote-tiering 110")
@pytest.mark.parametrize("present", [None, *RemotePartitionDeleteState])
@pytest.mark.parametrize("target", RemotePartitionDeleteState)
def test_partition_delete_goes_forward_one_state_at_a_time(
    present: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState
) -> None:
    step = RemotePartitionDeleteMetadata(partition=PARTITION, state=target, event_timestamp_ms=1, broker_id=1)
    if (present, target) in LEGAL:
        step.require_follows(present)
        assert present is None or present.may_become(target)
    else:
        with pytest.raises(InvalidSegmentTransitionError, match=target.name):
            step.require_follows(present)
        assert present is None or not present.may_become(target)
