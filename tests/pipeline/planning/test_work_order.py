import pickle
from dataclasses import replace
from uuid import UUID

import pytest

from tests.pipeline.planning.tiers import other_partition, remote
from tests.pipeline.planning.works import work_of
from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.pipeline.planning import WorkOrder

WORK = work_of(3)
ORDER = WorkOrder(run_id=UUID(int=3), now_ms=9, secret=bytes(range(16)), partitions=(WORK,))


def test_an_order_can_be_sent_to_executors() -> None:
    assert pickle.loads(pickle.dumps(ORDER)) == ORDER


def test_the_secret_is_not_in_the_repr() -> None:
    assert repr(ORDER.secret) not in repr(ORDER)
    assert ORDER.secret.hex() not in repr(ORDER)


def test_an_input_of_another_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="is not of"):
        replace(WORK, inputs=(remote(0, 9, partition=other_partition(1)),), groups=())


def test_inputs_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        replace(WORK, inputs=tuple(reversed(WORK.inputs)))


def test_order_with_a_partition_index_other_than_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="index 1 at place 0"):
        replace(ORDER, partitions=(replace(WORK, index=1),))


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="15 bytes"):
        replace(ORDER, secret=b"x" * 15)


def test_counts_of_erased_keys_are_restored_from_the_places_of_the_keys() -> None:
    work = replace(WORK, erased_keys=frozenset({b"b", b"a", b"c"}))
    places = work.erased_places({b"c": 2, b"a": 1})
    assert places == {0: 1, 2: 2}
    assert work.erased_counts(places) == {b"a": 1, b"c": 2}


@pytest.mark.parametrize("place", [-1, 1])
def test_count_of_a_key_outside_the_order_is_refused(place: int) -> None:
    with pytest.raises(WorkOrderError, match=f"erases 1 keys from .*, none at place {place}"):
        replace(WORK, erased_keys=frozenset({b"a"})).erased_counts({place: 1})
