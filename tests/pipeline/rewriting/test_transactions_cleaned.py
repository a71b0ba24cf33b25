"""Transactions, markers and producers over several rounds (Kafka: LogCleanerTest)."""

from pathlib import Path

import pytest

from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import LATER_MS, CompactedLog
from tierd.log import AppendOrigin, NewRecord, Producer


@pytest.fixture
def log(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


@pytest.mark.spec("log-format CLN-04")
def test_kept_batches_of_a_producer_still_detect_duplicates(log: CompactedLog) -> None:
    log.write(1, 2, 3, producer_id=1)  # 0 to 2
    log.write(3, 1, 4, producer_id=2)  # 3 to 5
    log.write(1, 4, producer_id=3)  # 6, 7
    log.roll()
    log.clean()
    assert log.last_offsets() == [2, 5, 7]
    assert log.last_sequences() == {1: 2, 2: 2, 3: 1}
    assert (log.keys(), log.offsets()) == ([2, 3, 1, 4], [1, 3, 6, 7])
    for producer_id, keys, first in ((1, (1, 2, 3), 0), (3, (1, 4), 6), (2, (3, 1, 4), 3)):
        again = [NewRecord(b"%d" % key, b"value", NOW_MS) for key in keys]
        info = log.send(again, producer=Producer(producer_id, 0, 0))
        assert (info.first_offset, info.last_offset) == (first, first + len(keys) - 1)
    log.write(2, producer_id=4)  # 8
    log.roll()
    log.clean()
    assert log.last_offsets() == [2, 5, 7, 8]  # the batch of producer 1 is empty now
    assert log.last_sequences() == {1: 2, 2: 2, 3: 1, 4: 0}
    assert (log.keys(), log.offsets()) == ([3, 1, 4, 2], [3, 6, 7, 8])
    again = [NewRecord(b"%d" % key, b"value", NOW_MS) for key in (1, 2, 3)]
    assert log.send(again, producer=Producer(1, 0, 0)).last_offset == 2


@pytest.mark.spec("log-format CLN-05")
def test_aborted_data_is_removed_before_index_entries_and_index_entries_before_markers(log: CompactedLog) -> None:
    log.in_transaction(1, 1, 2)  # 0, 1
    log.in_transaction(2, 2, 3)  # 2, 3
    log.in_transaction(1, 3, 4)  # 4, 5
    log.commit(1)  # 6
    log.commit(2)  # 7
    log.in_transaction(2, 2, 3)  # 8, 9
    log.abort(2)  # 10
    log.in_transaction(2, 4, 5)  # 11, 12
    log.in_transaction(1, 5, 6)  # 13, 14
    log.commit(1)  # 15
    log.abort(2)  # 16
    log.in_transaction(2, 6, 7)  # 17, 18
    log.commit(2)  # 19
    log.roll()
    aborted = log.aborted()
    assert [entry.last_offset for entry in aborted] == [10, 16]
    log.clean()
    assert log.aborted() == aborted
    assert log.offsets() == [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19]
    log.clean()
    assert log.aborted() == []
    assert log.offsets() == [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19]
    log.clean(LATER_MS)
    assert log.offsets() == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]
    assert log.keys() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.spec("log-format CLN-06")
def test_interleaved_aborted_and_committed_data_are_cleaned_apart(log: CompactedLog) -> None:
    log.in_transaction(1, 1, 2)  # 0, 1
    log.in_transaction(2, 2, 3)  # 2, 3
    log.in_transaction(1, 3, 4)  # 4, 5
    log.abort(1)  # 6
    log.commit(2)  # 7
    log.in_transaction(1, 2)  # 8
    log.commit(1)  # 9
    log.roll()
    aborted = log.aborted()
    log.clean()
    assert (log.keys(), log.offsets()) == ([3, 2], [3, 6, 7, 8, 9])
    assert log.aborted() == aborted


@pytest.mark.spec("log-format CLN-07")
@pytest.mark.parametrize("is_grouped", [True, False])
def test_transactions_across_segments_and_groups_are_cleaned_as_whole_ones(
    log: CompactedLog, *, is_grouped: bool
) -> None:
    log.in_transaction(1, 1, 2)  # 0, 1
    log.in_transaction(2, 2, 3)  # 2, 3
    log.roll()
    log.in_transaction(1, 3, 4)  # 4, 5
    log.in_transaction(3, 5)  # 6
    log.roll()
    log.abort(1)  # 7
    log.commit(2)  # 8
    log.commit(3)  # 9
    log.roll()
    log.clean(is_grouped=is_grouped)
    assert (log.keys(), log.offsets()) == ([2, 3, 5], [2, 3, 6, 7, 8, 9])
    assert [entry.last_offset for entry in log.aborted()] == [7]
    log.in_transaction(1, 2, 3)  # 10, 11
    log.commit(1)  # 12
    log.roll()
    log.clean(is_grouped=is_grouped)
    assert [entry.last_offset for entry in log.aborted()] == [7]  # the transaction had an empty batch
    assert (log.keys(), log.offsets()) == ([5, 2, 3], [6, 7, 8, 9, 10, 11, 12])
    log.clean(is_grouped=is_grouped)
    log.clean(LATER_MS, is_grouped=is_grouped)
    assert log.aborted() == []
    assert log.offsets() == [6, 8, 9, 10, 11, 12]  # producer 2's last batch is an empty one, and needs its marker


@pytest.mark.spec("log-format CLN-08")
def test_commit_marker_is_kept_while_its_data_is_and_then_until_its_horizon(log: CompactedLog) -> None:
    log.in_transaction(1, 1)  # 0
    log.in_transaction(1, 2, 3)  # 1, 2
    log.commit(1)  # 3
    log.in_transaction(1, 2)  # 4
    log.commit(1)  # 5
    log.roll()
    log.clean()
    assert (log.keys(), log.offsets()) == ([1, 3, 2], [0, 2, 3, 4, 5])
    log.in_transaction(1, 1, 3)  # 6, 7
    log.commit(1)  # 8
    log.roll()
    log.clean()  # the transaction still had data
    assert (log.keys(), log.offsets()) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    log.clean()  # sets the horizon
    log.clean()  # at the same time, so no horizon is past
    assert log.offsets() == [3, 4, 5, 6, 7, 8]
    log.clean(LATER_MS)
    assert (log.keys(), log.offsets()) == ([2, 1, 3], [4, 5, 6, 7, 8])


@pytest.mark.spec("log-format CLN-10")
def test_last_batch_of_a_producer_is_kept_empty_until_its_next_write(log: CompactedLog) -> None:
    log.in_transaction(1, 2, 3)  # 0, 1
    log.roll()
    log.in_transaction(2, 2, 3)  # 2, 3
    log.commit(2)  # 4
    log.roll()
    log.commit(1)  # 5
    log.roll()
    for _ in range(2):
        log.clean()
        assert (log.keys(), log.offsets(), log.last_offsets()) == ([2, 3], [2, 3, 4, 5], [1, 3, 4, 5])
    log.in_transaction(2, 1)  # 6
    log.commit(2)  # 7
    log.roll()
    log.clean()
    assert (log.keys(), log.last_offsets()) == ([2, 3, 1], [1, 3, 4, 5, 6, 7])
    log.in_transaction(1, 1)  # 8
    log.commit(1)  # 9
    log.roll()
    log.clean()  # the empty batch of producer 1 is removed, its marker ended a transaction with data
    assert log.offsets() == [2, 3, 4, 5, 7, 8, 9]
    assert log.last_offsets() == [3, 4, 5, 6, 7, 8, 9]
    log.clean()
    assert log.last_offsets() == [3, 4, 5, 6, 7, 8, 9]
    log.clean(LATER_MS)
    assert (log.keys(), log.offsets()) == ([2, 3, 1], [2, 3, 4, 7, 8, 9])
    assert log.last_offsets() == [3, 4, 6, 7, 8, 9]


@pytest.mark.spec("log-format CLN-11")
def test_the_marker_of_a_producer_without_data_becomes_an_empty_control_batch(log: CompactedLog) -> None:
    log.commit(1)  # 0
    log.write(2)  # 1
    log.write(3)  # 2
    log.roll()
    log.clean()
    log.clean(LATER_MS)
    assert (log.keys(), log.offsets(), log.last_offsets()) == ([2, 3], [1, 2], [0, 1, 2])
    emptied = log.batches()[0]
    assert (emptied.is_control, emptied.size_bytes, emptied.delete_horizon_ms) == (True, 61, None)
    log.clean(LATER_MS)
    assert log.last_offsets() == [0, 1, 2]


@pytest.mark.spec("log-format CLN-12")
@pytest.mark.parametrize("is_grouped", [True, False])
def test_record_and_its_commit_marker_in_the_next_segment_are_both_kept(log: CompactedLog, *, is_grouped: bool) -> None:
    log.in_transaction(1, 1)
    log.roll()
    log.commit(1)
    log.roll()
    for now_ms in (NOW_MS, LATER_MS):
        log.clean(now_ms, is_grouped=is_grouped)
        assert (log.offsets(), log.last_offsets()) == ([0, 1], [0, 1])


@pytest.mark.spec("log-format CLN-12")
@pytest.mark.parametrize("is_grouped", [True, False])
def test_an_aborted_record_and_its_marker_in_the_next_segment_become_an_empty_batch_and_the_marker(
    log: CompactedLog, *, is_grouped: bool
) -> None:
    log.in_transaction(1, 1)
    log.roll()
    log.abort(1)
    log.roll()
    for now_ms in (NOW_MS, LATER_MS, (1 << 62)):
        log.clean(now_ms, is_grouped=is_grouped)
        assert (log.offsets(), log.last_offsets()) == ([1], [0, 1])
        assert len(log.aborted()) == 1


@pytest.mark.spec("log-format CLN-13")
def test_abort_marker_is_removed_in_the_second_pass_after_its_data(log: CompactedLog) -> None:
    log.in_transaction(1, 1)  # 0
    log.in_transaction(1, 2, 3)  # 1, 2
    log.abort(1)  # 3
    log.in_transaction(1, 3)  # 4
    log.commit(1)  # 5
    log.roll()
    log.clean()
    assert (log.keys(), log.offsets()) == ([3], [3, 4, 5])
    log.clean()
    log.clean(LATER_MS)
    assert (log.keys(), log.offsets()) == ([3], [4, 5])


@pytest.mark.spec("log-format CLN-14")
def test_coordinator_that_restarts_at_sequence_0_keeps_only_its_newest_empty_batch(log: CompactedLog) -> None:
    for key in (1, 2):
        record = NewRecord(b"%d" % key, b"value", NOW_MS)
        log.send([record], producer=Producer(1, 0, 0), transactional=True, origin=AppendOrigin.COORDINATOR)  # 0, 2
        log.commit(1)  # 1, 3
    log.write(1)  # 4
    log.write(2)  # 5
    log.roll()
    for _ in range(2):
        log.clean()
        assert (log.offsets(), log.last_offsets()) == ([1, 3, 4, 5], [1, 2, 3, 4, 5])
    log.clean(LATER_MS)
    assert (log.offsets(), log.last_offsets()) == ([3, 4, 5], [2, 3, 4, 5])


@pytest.mark.spec("log-format CLN-15")
def test_aborted_transaction_stays_indexed_while_it_has_an_empty_batch(log: CompactedLog) -> None:
    log.in_transaction(1, 2, 3)  # 0, 1
    log.abort(1)  # 2
    log.roll()
    indexed = log.aborted()
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in indexed] == [(1, 0, 2)]
    for now_ms in (NOW_MS, NOW_MS, LATER_MS):
        log.clean(now_ms)
        assert (log.offsets(), log.last_offsets()) == ([2], [1, 2])
        assert log.aborted() == indexed
    log.in_transaction(1, 1)  # 3
    log.commit(1)  # 4
    log.roll()
    log.clean()
    assert (log.keys(), log.offsets(), log.aborted()) == ([1], [2, 3, 4], indexed)
    log.clean()
    log.clean(LATER_MS)
    assert (log.keys(), log.offsets(), log.aborted()) == ([1], [3, 4], [])


@pytest.mark.spec("log-format CLN-19")
def test_last_batch_of_each_producer_is_kept_even_if_empty(log: CompactedLog) -> None:
    log.write(0)  # 0
    for producer_id in (1, 2, 3):
        log.write(0, producer_id=producer_id)  # 1 to 3
    log.write(1, producer_id=2)  # 4
    log.roll()
    log.clean()
    assert log.last_offsets() == [1, 3, 4]
    assert log.last_sequences() == {1: 0, 2: 1, 3: 0}
    assert (log.keys(), log.offsets()) == ([0, 1], [3, 4])


@pytest.mark.spec("log-format CLN-20")
def test_record_with_the_key_bytes_of_a_marker_supersedes_no_marker(log: CompactedLog) -> None:
    log.in_transaction(1, 1)  # 0
    log.commit(1)  # 1
    record = NewRecord(b"\x00\x00\x00\x01", b"value", NOW_MS)  # the key of a COMMIT marker
    log.send([record], producer=Producer(2, 0, 0), transactional=True)  # 2
    log.commit(2)  # 3
    log.roll()
    log.clean()
    assert (log.offsets(), log.last_offsets()) == ([0, 1, 2, 3], [0, 1, 2, 3])
