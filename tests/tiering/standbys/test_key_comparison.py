import pytest

from tests.log.logs import end_marker, records
from tierd.log import Producer, RecordBatch, iter_batches
from tierd.tiering.standbys.key_comparison import KeyComparison


def batch(data: bytes) -> RecordBatch:
    (found,) = iter_batches(data, name="test")
    return found


def of(offset: int, key: bytes) -> RecordBatch:
    return batch(records(key=key, base_offset=offset))


def test_later_record_explains_what_the_copy_lacks() -> None:
    keys = KeyComparison()
    keys.lacks(b"a", 3, is_tombstone=False)
    keys.follow(of(3, b"a"))
    assert keys.unexplained == [3]
    keys.follow(of(4, b"b"))
    assert keys.is_waiting
    keys.follow(of(5, b"a"))
    assert (keys.unexplained, keys.is_waiting) == ([], False)


def test_tombstone_needs_no_explanation_unless_the_copy_has_an_older_value() -> None:
    keys = KeyComparison()
    keys.lacks(b"a", 7, is_tombstone=True)
    assert (keys.unexplained, keys.has_deleted) == ([], True)
    assert keys.revived([of(1, b"b"), of(2, b"a"), of(3, b"a"), of(8, b"a")]) == 3
    assert keys.revived([of(1, b"b"), of(8, b"a")]) is None
    assert keys.revived([of(2, b"a"), batch(records(key=b"a", value=None, base_offset=3))]) is None


@pytest.mark.parametrize(("commit", "revived"), [(True, 2), (False, None)])
def test_value_of_an_aborted_transaction_brings_no_key_back(commit: bool, revived: int | None) -> None:
    keys = KeyComparison()
    keys.lacks(b"a", 7, is_tombstone=True)
    value = records(key=b"a", base_offset=2, producer=Producer(9, 0, 0), transactional=True)
    assert keys.revived([batch(value), batch(end_marker(9, commit=commit, base_offset=8))]) == revived


@pytest.mark.parametrize(("commit", "unexplained"), [(True, [3]), (False, [])])
def test_record_of_a_transaction_waits_for_its_marker(commit: bool, unexplained: list[int]) -> None:
    keys = KeyComparison()
    keys.lacks(b"a", 3, is_tombstone=False, producer_id=9)
    keys.lacks(b"b", 4, is_tombstone=True, producer_id=9)
    assert (keys.unexplained, keys.has_deleted) == ([], False)
    keys.follow(batch(end_marker(8, commit=True, base_offset=5)))
    keys.follow(batch(end_marker(9, commit=True, base_offset=2)))
    assert keys.unexplained == []
    keys.follow(batch(end_marker(9, commit=commit, base_offset=6)))
    assert (keys.unexplained, keys.has_deleted) == (unexplained, commit)


def test_too_many_keys_end_the_comparison_without_an_answer() -> None:
    keys = KeyComparison(max_keys=2)
    for offset, key in enumerate((b"a", b"b", b"c", b"d")):
        keys.lacks(key, offset, is_tombstone=offset == 0)
    assert (keys.is_too_large, keys.unexplained, keys.has_deleted) == (True, [], False)
