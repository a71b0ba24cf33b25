"""ProducerStateManager: the producers of a log, their transactions and snapshots (log-format 3.3, 4.4 and 4.5)."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import structlog

from tierd.errors import CorruptIndexError
from tierd.log.files.disk import Disk
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.active_producer import ActiveProducer
from tierd.log.producers.producer_append import ProducerAppendInfo
from tierd.log.producers.producer_snapshots import ProducerSnapshots
from tierd.log.producers.producer_state import ProducerStateEntry
from tierd.log.producers.transactions import CompletedTransaction, EndMarker
from tierd.log.producers.undecided import UndecidedTransactions
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.model import TopicPartition

log = structlog.get_logger()


class ProducerStateManager:
    """State of a log's producers up to ``map_end_offset``, exclusive (Kafka: ProducerStateManager).

    One writer. Calls that touch files block and raise ``OSError``; a batch without a producer needs no call at all.

    Attributes:
        config: the settings of the log; new settings replace them.
        snapshots: the snapshot files.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        topic_partition: TopicPartition,
        config: LogConfig,
        snapshot_offsets: Collection[int] | None = None,
    ) -> None:
        """Begin without producers; ``truncate_and_reload`` reads one of the snapshots.

        Args:
            disk: where the partition directory lies.
            directory: of the partition.
            topic_partition: for errors and events.
            config: the log's settings.
            snapshot_offsets: of the snapshots in ``directory``, from a caller who has listed it.
        """
        self.config = config
        self.snapshots = ProducerSnapshots(disk, directory, snapshot_offsets)
        self._name = str(topic_partition)
        self._where = {"partition": self._name, "log_dir": str(directory.parent)}
        self._producers: dict[int, ActiveProducer] = {}
        self._undecided = UndecidedTransactions()
        self._map_end_offset = 0
        self._last_snapshot_offset = 0
        self.has_forgotten = False
        """Whether a producer has expired: then knowing of none does not mean that there was none."""

    # What is known

    @property
    def map_end_offset(self) -> int:
        """Return the exclusive end offset of the batches that the state covers."""
        return self._map_end_offset

    @property
    def producers(self) -> Mapping[int, ActiveProducer]:
        """Return the producers by id: a view that follows every change, and that callers do not change."""
        return MappingProxyType(self._producers)

    @property
    def entries(self) -> tuple[ProducerStateEntry, ...]:
        """Return the producers as a snapshot describes them, in the order in which they were first seen."""
        return tuple(producer.to_snapshot() for producer in self._producers.values())

    @property
    def is_empty(self) -> bool:
        """Return True if the state has no producer and no completed transaction that may yet be truncated away."""
        return not self._producers and not self._undecided.has_unreplicated

    def last_entry(self, producer_id: int) -> ActiveProducer | None:
        """Return the state of a producer, None without one; the caller must not change it."""
        return self._producers.get(producer_id)

    def has_open_transaction(self, producer_id: int) -> bool:
        """Return True if a transaction of the producer waits for its marker."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.current_txn_first_offset >= 0

    @property
    def first_unstable_offset(self) -> LogOffset | None:
        """Return the start of the earliest transaction that is open or has an unreplicated marker; None without one."""
        return self._undecided.first_unstable

    # Appends

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begin to check an append's batches of one producer; nothing changes before ``update``.

        Args:
            producer_id: of batches that have one.
            origin: of the append.
        """
        before = self._producers.get(producer_id) or ActiveProducer(producer_id)
        return ProducerAppendInfo(before, origin=origin, where=self._where)

    def update(self, appended: ProducerAppendInfo) -> None:
        """Apply a prepared append to the state; the caller must not use ``appended`` again.

        Raises:
            ValueError: the batches have no producer id.
        """
        newer = appended.newer
        if newer.producer_id < 0:
            raise ValueError(f"{self._name}: producer id {newer.producer_id} is negative")
        known = self._producers.get(newer.producer_id)
        if known is None:
            self._producers[newer.producer_id] = newer
        else:
            known.update(newer)
        for place in appended.started:
            self._undecided.begin(newer.producer_id, place)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset once ``completed`` is decided, as the transaction index stores it."""
        return self._undecided.last_stable_offset(completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """Mark an open transaction as decided; the transaction stays unstable until its marker is replicated.

        Raises:
            ValueError: the transaction is not open.
        """
        self._undecided.complete(completed)

    def replay(self, header: BatchHeader, marker: EndMarker | None) -> AbortedTransaction | None:
        """Apply the next batch of the log without checks, and move ``map_end_offset`` to the batch's end.

        Args:
            header: header of any batch, with or without a producer.
            marker: content of a control batch.

        Returns:
            The entry that belongs into the transaction index, if the batch aborted a transaction.

        Raises:
            InvalidTransactionStateError: a batch outside of the transaction that its producer has open.
        """
        aborted = None
        if header.producer_id >= 0:
            appended = self.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
            completed = appended.append(header, None, marker)
            self.update(appended)
            if completed is not None:
                aborted = self.index_entry(completed)
                self.complete(completed)
        self._map_end_offset = header.last_offset + 1
        return aborted

    def index_entry(self, completed: CompletedTransaction) -> AbortedTransaction | None:
        """Return the transaction index entry of ``completed``, None of a commit; call it before ``complete``."""
        if not completed.is_aborted:
            return None
        return AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            self._undecided.last_stable_offset(completed),
        )

    def update_map_end_offset(self, offset: int) -> None:
        """Set the exclusive end offset of the batches that the state covers to ``offset``."""
        self._map_end_offset = offset

    # Time and bounds

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget the decided transactions whose markers lie below ``high_watermark``."""
        self._undecided.forget_below(high_watermark)

    def on_log_start_incremented(self, log_start_offset: int) -> None:
        """Forget the decided transactions below ``log_start_offset``; the producers stay."""
        self._undecided.forget_below(log_start_offset)
        self._map_end_offset = max(self._map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers without an open transaction that are silent for too long."""
        for producer_id in [pid for pid, producer in self._producers.items() if self._is_expired(producer, now_ms)]:
            del self._producers[producer_id]
            self.has_forgotten = True

    def _is_expired(self, producer: ActiveProducer, now_ms: int) -> bool:
        age_ms = now_ms - producer.last_timestamp_ms
        return producer.current_txn_first_offset < 0 and age_ms >= self.config.producer_id_expiration_ms

    # Truncation

    def truncate_and_reload(self, *, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot that can be read, unless the state ends at ``log_end_offset`` already.

        Snapshots above the end, or not above the start, are deleted, and those that cannot be read. Afterwards
        The caller then replays the batches from ``map_end_offset`` on.
        """
        for offset in self.snapshots.offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.snapshots.delete(offset)
        self.snapshots.sync_removals()
        if log_end_offset == self._map_end_offset:
            self.on_log_start_incremented(log_start_offset)
            return
        self._forget_producers()
        self._load_newest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, delete every snapshot, and go on at ``offset``."""
        self._forget_producers()
        for snapshot in self.snapshots.offsets:
            self.snapshots.delete(snapshot)
        self.snapshots.sync_removals()
        self._last_snapshot_offset = 0
        self._map_end_offset = offset

    def _forget_producers(self) -> None:
        self._producers.clear()
        self._undecided.clear()

    def _load_newest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        self._map_end_offset = self._last_snapshot_offset = log_start_offset
        while (offset := self.snapshots.latest) is not None:
            try:
                entries = self.snapshots.load(offset)
            except (CorruptIndexError, FileNotFoundError) as error:
                log.warning("producer_snapshot_unreadable", **self._where, offset=offset, problem=str(error))
                self.snapshots.delete(offset)
                continue
            self._last_snapshot_offset = offset
            self.load(entries, end_offset=offset, now_ms=now_ms)
            log.info("producer_snapshot_loaded", **self._where, offset=offset, producers=len(self._producers))
            return

    def load(self, entries: Iterable[ProducerStateEntry], *, end_offset: int, now_ms: int) -> None:
        """Add the entries of a snapshot at ``end_offset`` to an empty state, except expired producers."""
        self._map_end_offset = end_offset
        for entry in entries:
            self._load(ActiveProducer.from_snapshot(entry), now_ms)

    def _load(self, producer: ActiveProducer, now_ms: int) -> None:
        if self._is_expired(producer, now_ms):
            self.has_forgotten = True
            return
        self._producers[producer.producer_id] = producer
        if producer.current_txn_first_offset >= 0:
            self._undecided.begin(producer.producer_id, LogOffset(producer.current_txn_first_offset))

    # Snapshots

    @property
    def latest_snapshot_offset(self) -> int | None:
        """Return the offset of the newest snapshot; None without one."""
        return self.snapshots.latest

    def take_snapshot(self, *, sync: bool) -> Path | None:
        """Write the state, unless a snapshot at this offset or above exists; return the file.

        Args:
            sync: durably; otherwise ``snapshots.sync`` is to follow.
        """
        offset = self._map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        entries = self.entries
        path = self.snapshots.write(offset, entries, sync=sync)
        self._last_snapshot_offset = offset
        log.info("producer_snapshot_written", **self._where, offset=offset, producers=len(entries))
        return path

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Look for snapshots anew, and delete those that no segment and no clean stop accounts for."""
        self.snapshots.remove_strays(segment_base_offsets)

    def remove_and_mark_snapshot_for_deletion(self, offset: int) -> Path | None:
        """Rename a snapshot to ``.deleted`` and forget it; return the file to unlink, None when it was gone."""
        return self.snapshots.mark_for_deletion(offset)

    def moved(self, directory: Path) -> None:
        """Take note that the partition directory has another name."""
        self.snapshots.moved(directory)
        self._where = {"partition": self._name, "log_dir": str(directory.parent)}
