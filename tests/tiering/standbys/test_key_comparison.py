import pytest

from tests.log.logs import end_marker, records
from tierd.log import Record, RecordBatch, iter_batches
from tierd.log.records.log_config import TimestampType
from tierd.tiering.standbys.key_comparison import KeyComparison


def batch(data: bytes) -> RecordBatch:
    (found,) = iter_batches(data, name="test")
    return found


def of(offset: int, key: bytes) -> RecordBatch:
    return batch(records(key=key, base_offset=offset))


def record(offset: int, key: bytes, value: bytes | None = b"value") -> Record:
    return Record(offset, 0, TimestampType.CREATE_TIME.value, key, value)


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
    assert (keys.unexplained, keys.deleted_before) == ([], 7)
    assert keys.is_revived_by(record(2, b"a"))
    assert not keys.is_revived_by(record(2, b"b"))
    assert not keys.is_revived_by(record(2, b"a", None))
    assert not keys.is_revived_by(record(8, b"a"))


@pytest.mark.parametrize(("commit", "unexplained"), [(True, [3]), (False, [])])
def test_record_of_a_transaction_waits_for_its_marker(commit: bool, unexplained: list[int]) -> None:
    keys = KeyComparison()
    keys.lacks(b"a", 3, is_tombstone=False, producer_id=9)
    keys.lacks(b"b", 4, is_tombstone=True, producer_id=9)
    assert (keys.unexplained, keys.deleted_before) == ([], 0)
    keys.follow(batch(end_marker(8, commit=True, base_offset=5)))
    keys.follow(batch(end_marker(9, commit=True, base_offset=2)))
    assert keys.unexplained == []
    keys.follow(batch(end_marker(9, commit=commit, base_offset=6)))
    assert (keys.unexplained, keys.deleted_before) == (unexplained, 4 if commit else 0)


def test_too_many_keys_end_the_comparison_without_an_answer() -> None:
    keys = KeyComparison(max_keys=2)
    for offset, key in enumerate((b"a", b"b", b"c", b"d")):
        keys.lacks(key, offset, is_tombstone=offset == 0)
    assert (keys.is_too_large, keys.unexplained, keys.deleted_before) == (True, [], 0)
