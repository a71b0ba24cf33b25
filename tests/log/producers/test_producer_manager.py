from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.producer_steps import (
    ABORT,
    COMMIT,
    NOW_MS,
    REPLICATION,
    append,
    data,
    data_offsets,
    end,
    manager_of,
    open_transactions,
    reloaded,
    snapshots_on_disk,
    take_snapshots_at,
    unstable,
)
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot
from tierd.log.producers.transactions import CompletedTransaction, EndMarker
from tierd.log.records.log_config import LogConfig
from tierd.log.records.record import ControlRecordType

EXPIRATION_MS = LogConfig().producer_id_expiration_ms


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return manager_of(tmp_path)


class TestTransactions:
    @pytest.mark.spec("log-format PSM-31")
    def test_decided_transaction_leaves_the_earliest_open_transaction_of_others_unstable(
        self, manager: ProducerStateManager
    ) -> None:
        for producer_id, offset in ((1, 992), (2, 994), (3, 996)):
            append(manager, data(offset, 0, producer_id=producer_id, transactional=True))
        seen = []
        for producer_id, first in ((1, 992), (3, 996), (2, 994)):
            completed = CompletedTransaction(producer_id, first, 1000 + producer_id, is_aborted=False)
            seen.append(manager.last_stable_offset(completed))
            manager.complete(completed)
        assert seen == [994, 994, 1003]

    @pytest.mark.spec("log-format APP-24")
    @pytest.mark.spec("log-format APP-25")
    def test_a_decided_transaction_is_unstable_until_its_marker_is_replicated(
        self, manager: ProducerStateManager
    ) -> None:
        append(manager, data(3, 0, producer_id=1, transactional=True), data(4, 0, producer_id=2, transactional=True))
        end(manager, ABORT, 5, producer_id=1)
        manager.on_high_watermark_updated(5)
        assert (unstable(manager), open_transactions(manager)) == (3, [4])
        manager.on_high_watermark_updated(6)
        assert unstable(manager) == 4
        end(manager, COMMIT, 6, producer_id=2)
        assert (unstable(manager), open_transactions(manager)) == (4, [])
        manager.on_high_watermark_updated(7)
        assert unstable(manager) is None

    def test_completion_of_a_transaction_that_was_not_begun_is_refused(self, manager: ProducerStateManager) -> None:
        append(manager, data(3, 0, transactional=True))
        for first in (2, 4):
            with pytest.raises(ValueError, match="was not begun"):
                manager.complete(CompletedTransaction(1, first, 9, is_aborted=True))

    def test_replay_of_a_log_yields_its_aborted_transactions(self, manager: ProducerStateManager) -> None:
        def mark(offset: int, producer_id: int, kind: ControlRecordType) -> AbortedTransaction | None:
            header = data(offset, -1, producer_id=producer_id, transactional=True, control=True)
            return manager.replay(header, EndMarker(kind, 0))

        manager.replay(data(0, -1, producer_id=-1, count=5), None)
        assert (manager.map_end_offset, manager.is_empty) == (5, True)
        for producer_id in (1, 2, 3):
            assert manager.replay(data(4 + producer_id, 7, producer_id=producer_id, transactional=True), None) is None
        assert mark(8, 2, COMMIT) is None
        assert mark(9, 3, ABORT) == AbortedTransaction(3, 7, 9, 5)
        assert mark(10, 1, ABORT) == AbortedTransaction(1, 5, 10, 11)
        assert mark(11, 1, ABORT) is None
        assert (unstable(manager), open_transactions(manager), manager.map_end_offset) == (5, [], 12)

    @pytest.mark.spec("log-format APP-26")
    def test_decided_transactions_below_the_log_start_are_dropped(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, producer_id=1, transactional=True), data(1, 0, producer_id=2, transactional=True))
        end(manager, COMMIT, 2, producer_id=1)
        manager.on_log_start_incremented(3)
        assert (unstable(manager), manager.map_end_offset) == (1, 3)
        manager.on_log_start_incremented(8)
        assert (unstable(manager), manager.map_end_offset) == (1, 8)
        assert set(manager.producers) == {1, 2}


class TestReload:
    @pytest.mark.spec("log-format PSM-14")
    def test_snapshot_restores_the_last_batch_and_the_open_transaction(
        self, manager: ProducerStateManager, tmp_path: Path
    ) -> None:
        append(manager, data(0, 0, transactional=True), data(1, 1, transactional=True))
        manager.take_snapshot(sync=True)
        after = reloaded(manager, tmp_path)
        known = after.last_entry(1)
        assert known is not None
        assert (known.first_sequence, known.last_sequence, len(known.batches)) == (1, 1, 1)
        assert (*data_offsets(known), known.current_txn_first_offset) == (1, 1, 0)
        assert (unstable(after), after.map_end_offset) == (0, 2)
        append(after, data(2, 2, transactional=True))

    @pytest.mark.spec("log-format PSM-15")
    def test_snapshot_restores_the_timestamp_of_a_marker(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        append(manager, data(0, 0, producer_id=1, transactional=True), data(1, 1, producer_id=1, transactional=True))
        end(manager, ABORT, 2, producer_id=1)
        end(manager, COMMIT, 3, producer_id=2, timestamp_ms=NOW_MS + 7)
        manager.take_snapshot(sync=False)
        after = reloaded(manager, tmp_path)
        finished, marked = after.last_entry(1), after.last_entry(2)
        assert finished is not None
        assert marked is not None
        assert (finished.last_sequence, finished.current_txn_first_offset) == (1, -1)
        assert (marked.last_sequence, data_offsets(marked)[1], marked.last_timestamp_ms) == (-1, -1, NOW_MS + 7)
        assert unstable(after) is None

    @pytest.mark.spec("log-format PSM-16")
    def test_fencing_marker_is_no_data_and_prevents_expiration(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, transactional=True, timestamp_ms=NOW_MS))
        end(manager, ABORT, 1, epoch=1, timestamp_ms=NOW_MS + EXPIRATION_MS)
        manager.remove_expired(NOW_MS + EXPIRATION_MS)
        known = manager.last_entry(1)
        assert known is not None
        assert (data_offsets(known)[1], known.last_timestamp_ms) == (-1, NOW_MS + EXPIRATION_MS)

    @pytest.mark.spec("log-format PSM-17")
    @pytest.mark.parametrize("origin", ["client", "replication"])
    def test_producer_that_expired_in_a_snapshot_may_continue_its_sequence(
        self, manager: ProducerStateManager, tmp_path: Path, origin: str
    ) -> None:
        append(manager, data(0, 0), data(1, 1))
        manager.take_snapshot(sync=False)
        after = reloaded(manager, tmp_path, now_ms=NOW_MS + EXPIRATION_MS)
        assert after.is_empty
        if origin == "client":
            append(after, data(2, 2))
        else:
            append(after, data(2, 2), origin=REPLICATION)
        known = after.last_entry(1)
        assert known is not None
        assert (known.first_sequence, known.last_sequence) == (2, 2)

    @pytest.mark.spec("log-format PSM-21")
    def test_truncation_below_a_marker_opens_its_transaction_again(self, manager: ProducerStateManager) -> None:
        append(manager, data(99, 0, transactional=True))
        manager.take_snapshot(sync=False)
        end(manager, COMMIT, 105)
        manager.on_high_watermark_updated(106)
        assert unstable(manager) is None
        manager.take_snapshot(sync=False)
        append(manager, data(106, 1))
        manager.truncate_and_reload(log_start_offset=0, log_end_offset=106, now_ms=NOW_MS)
        assert unstable(manager) is None
        manager.truncate_and_reload(log_start_offset=0, log_end_offset=100, now_ms=NOW_MS)
        assert (unstable(manager), manager.map_end_offset) == (99, 100)

    @pytest.mark.spec("log-format PSM-22")
    def test_reload_up_to_the_current_end_keeps_all_producers(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, producer_id=1), data(1, 0, producer_id=2))
        manager.take_snapshot(sync=False)
        manager.truncate_and_reload(log_start_offset=1, log_end_offset=2, now_ms=NOW_MS)
        assert set(manager.producers) == {1, 2}
        assert manager.latest_snapshot_offset == 2

    @pytest.mark.spec("log-format PSM-23")
    def test_silent_producer_expires_unless_its_transaction_is_open(self, manager: ProducerStateManager) -> None:
        append(manager, data(0, 0, producer_id=1), data(1, 0, producer_id=2, transactional=True))
        manager.remove_expired(NOW_MS + EXPIRATION_MS - 1)
        assert set(manager.producers) == {1, 2}
        manager.remove_expired(NOW_MS + EXPIRATION_MS)
        assert set(manager.producers) == {2}
        append(manager, data(2, 77, producer_id=1))
        manager.remove_expired(NOW_MS + 99 * EXPIRATION_MS)
        assert set(manager.producers) == {2}

    @pytest.mark.spec("log-format PSM-26")
    @pytest.mark.parametrize("damage", [lambda _: b"", lambda old: old[: len(old) // 2], lambda old: bytes(len(old))])
    def test_an_unreadable_snapshot_is_deleted_and_the_one_before_it_used(
        self, manager: ProducerStateManager, tmp_path: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        append(manager, data(0, 0))
        manager.take_snapshot(sync=False)
        append(manager, data(1, 1))
        newest = manager.take_snapshot(sync=False)
        assert newest is not None
        newest.write_bytes(damage(newest.read_bytes()))
        after = reloaded(manager, tmp_path)
        known = after.last_entry(1)
        assert known is not None
        assert (known.last_sequence, after.map_end_offset, snapshots_on_disk(tmp_path)) == (0, 1, [1])

    def test_reload_without_snapshots_has_no_producers(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        append(manager, data(0, 0))
        path = manager.take_snapshot(sync=False)
        assert path is not None
        other = manager_of(tmp_path)
        path.unlink()
        other.truncate_and_reload(log_start_offset=0, log_end_offset=9, now_ms=NOW_MS)
        assert (other.is_empty, other.map_end_offset, other.latest_snapshot_offset) == (True, 0, None)
        other.truncate_and_reload(log_start_offset=5, log_end_offset=9, now_ms=NOW_MS)
        assert other.map_end_offset == 5

    @pytest.mark.parametrize("producer_ids", [(1, 1), (1, 2), (-1, -1)])
    def test_a_snapshot_with_impossible_entries_is_loaded_all_the_same(
        self, tmp_path: Path, producer_ids: tuple[int, int]
    ) -> None:
        entries = tuple(ProducerStateEntry(id_, 0, 4, 6, 1, NOW_MS, 0, 5) for id_ in producer_ids)
        (tmp_path / f"{9:020d}.snapshot").write_bytes(encode_producer_snapshot(entries))
        loaded = manager_of(tmp_path)
        loaded.truncate_and_reload(log_start_offset=0, log_end_offset=9, now_ms=NOW_MS)
        assert unstable(loaded) == 5


class TestSnapshots:
    @pytest.mark.spec("log-format PSM-12")
    def test_snapshots_outside_of_the_log_are_deleted(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        take_snapshots_at(manager, range(1, 6))
        assert list(manager.snapshots.offsets) == [1, 2, 3, 4, 5]
        manager.truncate_and_reload(log_start_offset=1, log_end_offset=3, now_ms=NOW_MS)
        assert list(manager.snapshots.offsets) == [2, 3]
        assert manager.latest_snapshot_offset == 3
        assert snapshots_on_disk(tmp_path) == [2, 3]

    @pytest.mark.spec("log-format PSM-13")
    def test_second_snapshot_at_the_same_offset_is_not_written(
        self, manager: ProducerStateManager, tmp_path: Path
    ) -> None:
        assert manager.take_snapshot(sync=False) is None
        append(manager, data(0, 0))
        path = manager.take_snapshot(sync=False)
        assert path is not None
        assert path.name == "00000000000000000001.snapshot"
        assert manager.take_snapshot(sync=True) is None
        assert reloaded(manager, tmp_path).take_snapshot(sync=True) is None
        assert snapshots_on_disk(tmp_path) == [1]

    def test_longer_file_with_the_name_of_a_snapshot_is_replaced(
        self, manager: ProducerStateManager, tmp_path: Path
    ) -> None:
        (tmp_path / f"{1:020d}.snapshot").write_bytes(b"x" * 1000)
        append(manager, data(0, 0))
        path = manager.take_snapshot(sync=True)
        assert path is not None
        assert path.stat().st_size == 56
        assert set(reloaded(manager, tmp_path).producers) == {1}

    @pytest.mark.spec("log-format PSM-19")
    def test_full_truncation_deletes_all_snapshots(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        take_snapshots_at(manager, (5, 6))
        manager.truncate_fully_and_start_at(29)
        assert (manager.snapshots.offsets, snapshots_on_disk(tmp_path), manager.map_end_offset) == ((), [], 29)

    @pytest.mark.spec("log-format PSM-20")
    def test_snapshot_that_was_restored_on_disk_is_found(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        append(manager, data(0, 0))
        path = manager.take_snapshot(sync=False)
        assert path is not None
        content = path.read_bytes()
        manager.truncate_fully_and_start_at(0)
        path.write_bytes(content)
        assert list(manager.snapshots.offsets) == []
        manager.remove_stray_snapshots([1])
        assert (list(manager.snapshots.offsets), manager.map_end_offset) == ([1], 0)
        manager.truncate_and_reload(log_start_offset=0, log_end_offset=1, now_ms=NOW_MS)
        assert set(manager.producers) == {1}

    @pytest.mark.spec("log-format PSM-28")
    @pytest.mark.parametrize(
        ("bases", "left"), [([5], [5, 42]), ([42], [42]), ([], [42]), ([50], []), ([2, 5], [2, 5, 42])]
    )
    def test_stray_snapshots_are_deleted_except_that_of_the_clean_stop(
        self, tmp_path: Path, bases: list[int], left: list[int]
    ) -> None:
        for offset in (2, 5, 42):
            (tmp_path / f"{offset:020d}.snapshot").write_bytes(encode_producer_snapshot(()))
        manager = manager_of(tmp_path)
        manager.remove_stray_snapshots(bases)
        assert list(manager.snapshots.offsets) == left == snapshots_on_disk(tmp_path)

    @pytest.mark.spec("log-format PSM-29")
    def test_a_snapshot_is_renamed_before_it_is_deleted(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        take_snapshots_at(manager, (1, 2))
        marked = manager.remove_and_mark_snapshot_for_deletion(1)
        assert marked == tmp_path / "00000000000000000001.snapshot.deleted"
        assert marked.exists()
        assert manager.snapshots.offsets == (2,)
        manager.snapshots.path(2).unlink()
        assert manager.remove_and_mark_snapshot_for_deletion(2) is None
        assert manager.remove_and_mark_snapshot_for_deletion(3) is None
        assert manager.latest_snapshot_offset is None

    def test_sync_of_a_missing_snapshot_is_no_error(self, manager: ProducerStateManager) -> None:
        take_snapshots_at(manager, (1,))
        manager.snapshots.sync(1)
        manager.snapshots.sync(2)

    def test_snapshots_move_with_their_directory(self, manager: ProducerStateManager, tmp_path: Path) -> None:
        take_snapshots_at(manager, (1,))
        (tmp_path / "elsewhere").mkdir()
        manager.snapshots.path(1).rename(tmp_path / "elsewhere" / "00000000000000000001.snapshot")
        manager.moved(tmp_path / "elsewhere")
        take_snapshots_at(manager, (2,))
        manager.snapshots.delete(1)
        assert snapshots_on_disk(tmp_path / "elsewhere") == [2]

    def test_other_files_are_no_snapshots(self, tmp_path: Path) -> None:
        for name in ("00000000000000000001.snapshot.deleted", "1.snapshot", "00000000000000000002.log", "x.snapshot"):
            (tmp_path / name).write_bytes(b"")
        assert manager_of(tmp_path).snapshots.offsets == ()
