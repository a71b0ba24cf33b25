import threading
from pathlib import Path

import pytest

from tests.coded import coded
from tests.fakes.failing_disk import FailingDisk
from tests.log.logs import (
    NOW_MS,
    TransactionalProducer,
    end_marker,
    follow,
    lead,
    lead_marker,
    open_log,
    read_all,
    records,
)
from tierd.errors import LogDirOfflineError, TierErrorCode
from tierd.log.files.disk import OsDisk, OsFile
from tierd.log.indexes.transaction_index import AbortedTransaction, read_transaction_index
from tierd.log.log_errors import AppendError
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import Producer
from tierd.model import IsolationLevel


def unstable(log: UnifiedLog) -> int | None:
    return log.first_unstable_offset


def index_of(log: UnifiedLog, base_offset: int = 0) -> tuple[AbortedTransaction, ...]:
    path = log.directory / f"{base_offset:020d}.txnindex"
    return read_transaction_index(path, base_offset=base_offset).entries


@pytest.mark.spec("log-format APP-23")
def test_last_stable_offset_is_the_start_of_the_first_undecided_or_unreplicated_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.write(4)  # 0 to 3
    lead(log, records(2))  # 4, 5
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0
    lead(log, records(2))  # 6, 7
    two.write(3)  # 8 to 10
    first_marker = one.end(commit=True).last_offset
    assert log.last_stable_offset == 0
    lead(log, records(1))
    two.end(commit=False)
    lead(log, records(1))

    log.update_high_watermark(first_marker)
    assert log.last_stable_offset == 0
    log.update_high_watermark(first_marker + 1)
    assert log.last_stable_offset == 8
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.spec("log-format APP-24")
def test_a_transaction_is_unstable_until_its_marker_is_replicated(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(3))
    producer = TransactionalProducer(log, 1)
    producer.write(2)
    assert unstable(log) == 3
    producer.end(commit=True)
    assert unstable(log) == 3
    log.update_high_watermark(log.log_end_offset)
    assert unstable(log) is None


@pytest.mark.spec("log-format APP-25")
def test_second_of_two_overlapping_transactions_stays_unstable_until_its_own_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    one, two = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    one.write(1)
    second_begins = two.write(1).first_offset
    one.write(1)
    two.write(1)
    one.end(commit=False)
    assert unstable(log) == 0
    log.update_high_watermark(log.log_end_offset)
    assert unstable(log) == second_begins
    two.end(commit=True)
    log.update_high_watermark(log.log_end_offset)
    assert unstable(log) is None


@pytest.mark.spec("log-format APP-26")
@pytest.mark.parametrize(("start", "is_dropped"), [(5, False), (8, True)])
def test_first_unstable_offset_rises_with_the_log_start(tmp_path: Path, start: int, is_dropped: bool) -> None:
    log = open_log(tmp_path)
    TransactionalProducer(log, 1).write(8)
    log.roll(now_ms=NOW_MS)
    lead(log, records(2))
    log.update_high_watermark(log.log_end_offset)
    assert unstable(log) == 0
    log.increment_log_start_offset(start, reason="client delete records request")
    assert log.delete_old_segments(NOW_MS) == is_dropped
    assert unstable(log) == log.last_stable_offset == start


def interleaved(log: UnifiedLog, *, as_leader: bool) -> None:
    """Append for four producers: 1 and 2 abort, 3 and 4 commit; plain records between. The example is Kafka's own."""
    sequences = dict.fromkeys(range(1, 5), 0)

    def append(data: bytes, origin: AppendOrigin) -> None:
        if as_leader:
            lead(log, data, origin=origin)
        else:
            follow(log, data)

    def base() -> int:
        return 0 if as_leader else log.log_end_offset

    def write(producer_id: int, count: int) -> None:
        producer = Producer(producer_id, 0, sequences[producer_id])
        sequences[producer_id] += count
        data = records(count, base_offset=base(), producer=producer, transactional=True)
        append(data, AppendOrigin.CLIENT)

    def plain(count: int) -> None:
        append(records(count, base_offset=base()), AppendOrigin.CLIENT)

    def end(producer_id: int, *, commit: bool) -> None:
        append(end_marker(producer_id, commit=commit, base_offset=base()), AppendOrigin.COORDINATOR)

    write(1, 5)  # 0 to 4
    plain(3)  # 5 to 7
    write(2, 2)  # 8, 9
    write(1, 4)  # 10 to 13
    plain(3)  # 14 to 16
    write(3, 9)  # 17 to 25, 3 begins at 17
    write(2, 3)  # 26 to 28
    end(1, commit=False)  # 29
    plain(6)  # 30 to 35
    write(4, 3)  # 36 to 38
    write(3, 5)  # 39 to 43
    end(3, commit=True)  # 44
    write(2, 6)  # 45 to 50
    write(4, 10)  # 51 to 60
    plain(4)  # 61 to 64
    write(2, 9)  # 65 to 73
    end(2, commit=False)  # 74
    plain(8)  # 75 to 82
    write(4, 8)  # 83 to 90
    end(4, commit=True)  # 91


@pytest.mark.spec("log-format APP-27")
@pytest.mark.parametrize("as_leader", [True, False])
def test_aborted_transactions_are_indexed_in_the_order_of_their_markers(tmp_path: Path, as_leader: bool) -> None:
    log = open_log(tmp_path)
    interleaved(log, as_leader=as_leader)
    assert index_of(log) == (AbortedTransaction(1, 0, 29, 8), AbortedTransaction(2, 8, 74, 36))
    log.update_high_watermark(30)
    assert unstable(log) == 8
    log.update_high_watermark(75)
    assert unstable(log) == 36
    log.update_high_watermark(log.log_end_offset)
    assert unstable(log) is None
    assert [(a.producer_id, a.first_offset) for a in log.aborted_transactions(0, 30)] == [(1, 0), (2, 8)]


def test_committed_read_returns_the_aborted_transactions(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    interleaved(log, as_leader=True)
    log.update_high_watermark(log.log_end_offset)
    fetched = log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
    assert fetched.aborted is not None
    assert [(a.producer_id, a.first_offset) for a in fetched.aborted] == [(1, 0), (2, 8)]
    assert log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_UNCOMMITTED).aborted is None


@pytest.mark.spec("log-format APP-28")
def test_marker_of_an_old_coordinator_epoch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producer = TransactionalProducer(log, 1)
    producer.write(1)
    lead_marker(log, 1, commit=False, coordinator_epoch=2)
    for _ in range(2):  # first within a transaction, then for an empty one
        producer.write(1)
        with pytest.raises(AppendError, check=coded(TierErrorCode.TRANSACTION_COORDINATOR_FENCED)):
            lead_marker(log, 1, commit=False, coordinator_epoch=1)
        lead_marker(log, 1, commit=False, coordinator_epoch=2)
        with pytest.raises(AppendError, check=coded(TierErrorCode.TRANSACTION_COORDINATOR_FENCED)):
            lead_marker(log, 1, commit=True, coordinator_epoch=1)


@pytest.mark.spec("log-format APP-29")
def test_the_marker_of_an_old_producer_epoch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead_marker(log, 1, commit=False, producer_epoch=5)
    with pytest.raises(AppendError, check=coded(TierErrorCode.INVALID_PRODUCER_EPOCH)):
        lead_marker(log, 1, commit=True, producer_epoch=4)


@pytest.mark.spec("log-format APP-30")
def test_a_transaction_index_that_cannot_be_written_takes_the_log_dir_offline_until_recovery(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    TransactionalProducer(log, 1).write(10)
    disk.fails = lambda operation, path: operation in ("open", "write") and path.suffix == ".txnindex"
    for _ in range(2):
        with pytest.raises(LogDirOfflineError):
            lead_marker(log, 1, commit=False)
        assert (log.log_end_offset, log.last_stable_offset) == (11, 0)
    log.update_high_watermark(11)
    assert log.last_stable_offset == 0
    log.close_handles()

    again = open_log(tmp_path, clean=False)
    assert again.log_end_offset == 11
    assert index_of(again) == (AbortedTransaction(1, 0, 10, 11),)
    again.update_high_watermark(11)
    assert again.first_unstable_offset is None


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failing_disk_fails_every_set_of_a_group(tmp_path: Path, operation: str) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk, config=LogConfig(flush_messages=1))
    disk.fails = lambda name, path: name == operation and path.suffix == ".log"
    requests = [AppendRequest(records(producer=Producer(1, 0, sequence)), leader_epoch=0) for sequence in (0, 5, 1)]
    outcomes = log.append_many(requests, now_ms=NOW_MS)
    assert [type(outcome) for outcome in outcomes] == [LogDirOfflineError, AppendError, LogDirOfflineError]
    assert [outcome.code for outcome in outcomes if isinstance(outcome, AppendError)] == [
        TierErrorCode.OUT_OF_ORDER_SEQUENCE
    ]
    with pytest.raises(LogDirOfflineError):
        log.append_many(requests, now_ms=NOW_MS)
    assert log.log_end_offset == (0 if operation == "write" else 2)


@pytest.mark.spec("log-format APP-35")
def test_producer_entry_reports_epoch_sequence_open_transaction_and_coordinator(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producer = TransactionalProducer(log, 1, epoch=5)
    lead(log, records(3))
    producer.write(2)
    known = log.producers.producers[1]
    assert (known.producer_epoch, known.last_sequence, known.current_txn_first_offset) == (5, 1, 3)
    assert known.coordinator_epoch == -1
    lead_marker(log, 1, commit=True, producer_epoch=5, coordinator_epoch=7)
    known = log.producers.producers[1]
    assert (known.last_sequence, known.current_txn_first_offset, known.coordinator_epoch) == (1, -1, 7)


@pytest.mark.spec("log-format APP-36")
def test_committed_reads_beside_appends_return_no_open_transaction(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    last_offset = 200
    failures: list[BaseException] = []

    def move_high_watermark() -> None:
        try:
            while log.log_end_offset < last_offset:
                log.update_high_watermark(log.log_end_offset)
        except BaseException as error:
            failures.append(error)
            raise

    def read_committed() -> None:
        """Read committed records: none is of the open transaction, and every transaction is aborted in the end."""
        try:
            while (offset := log.last_stable_offset) < last_offset:
                for record in read_all(log, isolation=IsolationLevel.READ_COMMITTED, start=max(offset - 4, 0)):
                    assert record.offset < log.last_stable_offset
        except BaseException as error:
            failures.append(error)
            raise

    mover = threading.Thread(target=move_high_watermark, daemon=True)
    reader = threading.Thread(target=read_committed, daemon=True)
    mover.start()
    reader.start()
    producer = TransactionalProducer(log, 1)
    not_empty = 0
    while log.log_end_offset < last_offset:
        begin = log.log_end_offset
        producer.write(1)
        not_empty += bool(
            log.read(begin, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED, min_one_message=False).records
        )
        producer.end(commit=False)
    mover.join(timeout=30)  # otherwise the thread might set the high watermark back
    log.update_high_watermark(log.log_end_offset)
    reader.join(timeout=30)
    assert not mover.is_alive()
    assert not reader.is_alive()
    assert not failures
    assert not_empty == 0
    assert len(index_of(log)) == last_offset // 2


def test_transactions_of_one_group_are_indexed_one_by_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    requests: list[AppendRequest] = []
    for sequence in range(3):
        data = records(producer=Producer(1, 0, sequence), transactional=True)
        requests += [
            AppendRequest(data, leader_epoch=0),
            AppendRequest(end_marker(1, commit=False), AppendOrigin.COORDINATOR, 0),
        ]
    outcomes = log.append_many(requests, now_ms=NOW_MS)
    assert all(isinstance(outcome, AppendInfo) for outcome in outcomes)
    assert [(entry.first_offset, entry.last_offset) for entry in index_of(log)] == [(0, 1), (2, 3), (4, 5)]
    assert log.last_stable_offset == 0
    log.update_high_watermark(6)
    assert log.last_stable_offset == 6


class CountingDisk(OsDisk):
    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> OsFile:
        self.opened.append(path.name)
        return super().open(path, create=create, write=write)


@pytest.mark.parametrize("reloads", [False, True])
def test_committed_read_opens_no_transaction_index_of_segments_without_aborts(tmp_path: Path, reloads: bool) -> None:
    disk = CountingDisk()
    log = open_log(tmp_path, disk=disk)
    producer = TransactionalProducer(log, 1)
    producer.write(2)
    for _ in range(5):
        log.roll(now_ms=NOW_MS)
        lead(log, records())
    producer.end(commit=False)
    if reloads:
        log.close()
        log = open_log(tmp_path, disk=disk)
    log.update_high_watermark(log.log_end_offset)
    disk.opened.clear()
    found = log.read(0, max_bytes=1000, isolation=IsolationLevel.READ_COMMITTED).aborted
    assert found is not None
    assert [(aborted.first_offset, aborted.last_offset) for aborted in found] == [(0, 7)]
    assert [name for name in disk.opened if name.endswith(".txnindex")] == ["00000000000000000006.txnindex"]
