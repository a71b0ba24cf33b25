"""Headers of producers' batches, as the log passes them to the producer state; without bytes behind them."""

from collections.abc import Iterable
from pathlib import Path

from tierd.log.files.disk import OsDisk
from tierd.log.producers.active_producer import ActiveProducer
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import CompletedTransaction, EndMarker
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record import ControlRecordType
from tierd.model import TopicPartition

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT
CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
MAX_INT = 2**31 - 1
NOW_MS = 1_700_000_000_000


def data(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    timestamp_ms: int = NOW_MS,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        last_offset=offset + count - 1,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=(16 if transactional else 0) | (32 if control else 0),
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        position=0,
        size_bytes=61,
        name="orders-0",
    )


def manager_of(folder: Path, config: LogConfig | None = None) -> ProducerStateManager:
    topic_partition = TopicPartition("orders", 0)
    return ProducerStateManager(OsDisk(), folder, topic_partition=topic_partition, config=config or LogConfig())


def reloaded(manager: ProducerStateManager, folder: Path, *, now_ms: int = NOW_MS) -> ProducerStateManager:
    """Return another manager that begins with the newest snapshot of ``manager``."""
    other = manager_of(folder, manager.config)
    other.truncate_and_reload(log_start_offset=0, log_end_offset=manager.map_end_offset, now_ms=now_ms)
    return other


def append(
    manager: ProducerStateManager,
    *headers: BatchHeader,
    origin: AppendOrigin = CLIENT,
    place: LogOffset | None = None,
) -> None:
    """Append batches of data, one by one."""
    for header in headers:
        prepared = manager.prepare_update(header.producer_id, origin)
        prepared.append(header, place)
        manager.update(prepared)
        manager.update_map_end_offset(header.last_offset + 1)


def end(
    manager: ProducerStateManager,
    kind: ControlRecordType,
    offset: int,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = NOW_MS,
    origin: AppendOrigin = COORDINATOR,
) -> CompletedTransaction | None:
    """Append an end marker and decide its transaction."""
    header = data(
        offset, -1, producer_id=producer_id, epoch=epoch, transactional=True, control=True, timestamp_ms=timestamp_ms
    )
    prepared = manager.prepare_update(producer_id, origin)
    completed = prepared.append(header, None, EndMarker(kind, coordinator_epoch))
    manager.update(prepared)
    if completed is not None:
        manager.complete(completed)
    manager.update_map_end_offset(offset + 1)
    return completed


def unstable(manager: ProducerStateManager) -> int | None:
    first = manager.first_unstable_offset
    return None if first is None else first.offset


def data_offsets(producer: ActiveProducer) -> tuple[int, int]:
    """Return the first offset of the oldest batch that is known, and the last one of the newest; -1 without one."""
    batches = producer.batches
    return (batches[0].first_offset, batches[-1].last_offset) if batches else (-1, -1)


def open_transactions(manager: ProducerStateManager) -> list[int]:
    """Return the first offsets of the transactions that wait for their marker, ascending."""
    first_offsets = (producer.current_txn_first_offset for producer in manager.producers.values())
    return sorted(offset for offset in first_offsets if offset >= 0)


def snapshots_on_disk(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def take_snapshots_at(manager: ProducerStateManager, offsets: Iterable[int]) -> None:
    for offset in offsets:
        manager.update_map_end_offset(offset)
        assert manager.take_snapshot(sync=False) is not None
