"""DemoPartition: the log of one partition, appended to and maintained as its leader does."""

from collections.abc import Sequence

from tierd.log import (
    AppendOrigin,
    Compression,
    ControlRecordType,
    NewRecord,
    Producer,
    UnifiedLog,
    encode_batch,
    encode_end_marker,
)


class DemoPartition:
    """Leader of one log, the only replica. Each instance begins a leader epoch, as a restarted broker does."""

    def __init__(self, log: UnifiedLog) -> None:
        self._log = log
        latest = log.leader_epochs.latest
        self._epoch = latest.epoch + 1 if latest else 0
        log.assign_leader_epoch(self._epoch, log.log_end_offset)

    @property
    def next_offset(self) -> int:
        """Return the offset of the next record, which is the exclusive end of the log."""
        return self._log.log_end_offset

    def in_transaction(self, producer_id: int) -> bool:
        """Return True if the producer has an open transaction."""
        return self._log.producers.has_open_transaction(producer_id)

    def append(
        self,
        records: Sequence[NewRecord],
        *,
        now_ms: int,
        codec: Compression = Compression.NONE,
        producer_id: int | None = None,
    ) -> None:
        """Append one batch; with a ``producer_id`` in that producer's transaction, which is opened if necessary."""
        batch = encode_batch(
            records,
            compression=codec,
            producer=Producer() if producer_id is None else self._next_of(producer_id),
            is_transactional=producer_id is not None,
        )
        self._append(batch, AppendOrigin.CLIENT, now_ms)

    def end_transaction(self, producer_id: int, marker: ControlRecordType, *, now_ms: int) -> None:
        """Commit or abort the producer's transaction, as the coordinator does."""
        batch = encode_end_marker(
            kind=marker, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=now_ms
        )
        self._append(batch, AppendOrigin.COORDINATOR, now_ms)

    def abort_open_transactions(self, *, now_ms: int) -> None:
        """Abort the transactions of a killed writer, as the coordinator does after a timeout."""
        for producer_id in list(self._log.producers.producers):
            if self.in_transaction(producer_id):
                self.end_transaction(producer_id, ControlRecordType.ABORT, now_ms=now_ms)

    def tend(self, now_ms: int) -> None:
        """Delete what local retention does not keep, and do the other regular work of a broker."""
        self._log.delete_old_segments(now_ms)
        self._log.housekeep(now_ms)

    def _append(self, batch: bytes, origin: AppendOrigin, now_ms: int) -> None:
        self._log.append_as_leader(batch, leader_epoch=self._epoch, now_ms=now_ms, origin=origin)
        self._log.maybe_increment_high_watermark(self._log.log_end_offset)

    def _next_of(self, producer_id: int) -> Producer:
        known = self._log.producers.last_entry(producer_id)
        return Producer(producer_id, 0, known.last_sequence + 1 if known else 0)
