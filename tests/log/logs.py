"""A log in a temporary directory, and the batches that clients, coordinators and leaders send it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.log.batches import Row
from tierd.log.dirs.log_manager import LogManager
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.offline import OfflineFlag
from tierd.log.loading.log_loader import LoadRequest, load_log
from tierd.log.partition.append_info import AppendInfo
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import Producer, encode_batch, encode_end_marker
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NO_PRODUCER, NewRecord
from tierd.log.records.record import ControlRecordType, Record
from tierd.log.records.record_batch import iter_batches
from tierd.model import IsolationLevel

NOW_MS = 1_700_000_000_000


def clean_up(manager: LogManager, *, now_ms: int) -> int:
    """Apply retention to every log of a manager without a service; return how many segments that concerned."""
    return sum(log.delete_old_segments(now_ms) for log in manager.logs())


def housekeep(manager: LogManager, *, now_ms: int) -> None:
    """Run the housekeeping of a manager without a service: of every log, and of directories whose deletion is due."""
    for log in manager.logs():
        log.housekeep(now_ms)
    manager.remove_due_directories()


def open_log(
    log_dir: Path,
    *,
    name: str = "orders-0",
    config: LogConfig | None = None,
    disk: Disk | None = None,
    now_ms: int = NOW_MS,
    clean: bool = True,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    offline: OfflineFlag | None = None,
    random_int: int = 0,
) -> UnifiedLog:
    """Load the log in ``log_dir / name``, or create it; the jitter is drawn from ``random_int``."""
    disk = disk or OsDisk()
    directory = log_dir / name
    if disk.status(directory) is None:
        disk.make_directory(directory)
    return load_log(
        disk,
        directory,
        LoadRequest(
            config=config or LogConfig(),
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
        ),
        now_ms=now_ms,
        offline=offline or OfflineFlag(log_dir),
        random_int=lambda: random_int,
    )


def records(
    count: int = 1,
    *,
    base_offset: int = 0,
    timestamp_ms: int = NOW_MS,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    codec: Compression = Compression.NONE,
    producer: Producer = NO_PRODUCER,
    transactional: bool = False,
    epoch: int = 0,
) -> bytes:
    """Build a batch of equal records with consecutive offsets."""
    return encode_batch(
        [NewRecord(key, value, timestamp_ms)] * count,
        base_offset=base_offset,
        compression=codec,
        producer=producer,
        is_transactional=transactional,
        leader_epoch=epoch,
    )


def rows(base_offset: int, content: Sequence[Row], *, epoch: int = 0) -> bytes:
    """Build a batch of these records."""
    return encode_batch(
        [NewRecord(key, value, timestamp_ms) for timestamp_ms, key, value in content],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def end_marker(
    producer_id: int,
    *,
    commit: bool,
    base_offset: int = 0,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    epoch: int = 0,
    timestamp_ms: int = NOW_MS,
) -> bytes:
    """Build the control batch that ends a transaction."""
    return encode_end_marker(
        kind=ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def lead(
    log: UnifiedLog,
    data: bytes,
    *,
    epoch: int = 0,
    now_ms: int = NOW_MS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendInfo:
    """Append as the leader of ``epoch``."""
    return log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, origin=origin)


def lead_marker(
    log: UnifiedLog,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    epoch: int = 0,
    now_ms: int = NOW_MS,
) -> AppendInfo:
    """End a transaction as its coordinator does."""
    marker = end_marker(
        producer_id,
        commit=commit,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=now_ms,
    )
    return lead(log, marker, epoch=epoch, origin=AppendOrigin.COORDINATOR, now_ms=now_ms)


def follow(log: UnifiedLog, data: bytes, *, now_ms: int = NOW_MS) -> AppendInfo:
    """Append as a follower."""
    return log.append_as_follower(data, now_ms=now_ms)


class TransactionalProducer:
    """One transactional producer that appends its batches with its sequence numbers."""

    def __init__(self, log: UnifiedLog, producer_id: int, *, epoch: int = 0) -> None:
        self.producer_id = producer_id
        self._log = log
        self._epoch = epoch
        self._sequence = 0

    def write(self, count: int, *, now_ms: int = NOW_MS) -> AppendInfo:
        """Append a batch as leader."""
        producer = Producer(self.producer_id, self._epoch, self._sequence)
        self._sequence += count
        return lead(self._log, records(count, producer=producer, transactional=True, timestamp_ms=now_ms))

    def end(self, *, commit: bool) -> AppendInfo:
        """Append the marker as leader."""
        return lead_marker(self._log, self.producer_id, commit=commit, producer_epoch=self._epoch)


class TransactionalProducers:
    """Some producers by their letters, and one without transactions; a log is written as a sequence of entries.

    ::

        A   a batch of A's transaction       A+ A!   the end of it: committed, aborted       -   a batch of neither
    """

    def __init__(self, log: UnifiedLog, letters: str = "AB") -> None:
        self._log = log
        self._producers = {letter: TransactionalProducer(log, 1000 + n) for n, letter in enumerate(letters)}

    def append(self, entry: str) -> None:
        """Append one entry as leader; the entry is replicated immediately."""
        if entry == "-":
            lead(self._log, records())
        elif entry in self._producers:
            self._producers[entry].write(1)
        else:
            self._producers[entry[0]].end(commit=entry[1] == "+")
        self._log.maybe_increment_high_watermark(self._log.log_end_offset)

    def append_each_rolled(self, entries: Iterable[str]) -> None:
        """Append entries, a segment for each; the active one has a batch of its own."""
        for entry in entries:
            self.append(entry)
            self._log.roll(now_ms=NOW_MS)
        self.append("-")


def headers_of(log: UnifiedLog) -> list[BatchHeader]:
    """Return the headers of all batches in the log's files."""
    disk = OsDisk()
    found: list[BatchHeader] = []
    for segment in log.segments:
        file = disk.open(segment.path, write=False)
        try:
            found += iter_headers(file, end=segment.written_bytes)
        finally:
            file.close()
    return found


def read_all(log: UnifiedLog, *, isolation: IsolationLevel | None = None, start: int | None = None) -> list[Record]:
    """Return every record from ``start``, the log start by default, to the end that ``isolation`` allows."""
    found: list[Record] = []
    offset = log.log_start_offset if start is None else start
    while data := log.read(offset, max_bytes=1 << 20, isolation=isolation).records:
        for batch in iter_batches(data, name=str(log.topic_partition)):
            found += [record for record in batch.records() if record.offset >= offset]
            offset = batch.last_offset + 1
    return found
