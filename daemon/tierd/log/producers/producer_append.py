"""ProducerAppendInfo: the changes that an append makes to one producer (log-format 4.4; Kafka: ProducerAppendInfo)."""

from collections.abc import Mapping

import structlog

from tierd.errors import TierErrorCode
from tierd.log.log_errors import AppendError, InvalidTransactionStateError
from tierd.log.producers.active_producer import ActiveProducer, AppendedBatch
from tierd.log.producers.transactions import CompletedTransaction, EndMarker, advance_transaction
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import MAX_INT
from tierd.log.records.log_offset import LogOffset

log = structlog.get_logger()

_NO_EPOCH = -1


class ProducerAppendInfo:
    """The batches of one append and one producer, checked against the known state of the producer.

    Only this object changes; ``ProducerStateManager.update`` takes the changes over once the bytes are written.

    Attributes:
        started: first offsets of the transactions that the batches opened.
    """

    __slots__ = (
        "_before",
        "_name",
        "_where",
        "newer",
        "origin",
        "started",
    )

    def __init__(
        self,
        before: ActiveProducer,
        *,
        origin: AppendOrigin,
        where: Mapping[str, str],
    ) -> None:
        """Prepare an append of one producer.

        Args:
            before: the present state of the producer; it is not changed.
            origin: decides which checks apply.
            where: the partition, also for errors, and its log dir: fields of events.
        """
        self._before = before
        self._name = where["partition"]  # for errors
        self._where = where
        self.origin = origin
        self.newer = ActiveProducer(
            before.producer_id,
            before.producer_epoch,
            before.coordinator_epoch,
            before.last_timestamp_ms,
            before.current_txn_first_offset,
        )
        self.started: list[LogOffset] = []

    @property
    def producer_id(self) -> int:
        """Return the id of the producer that wrote the batches."""
        return self._before.producer_id

    def append(
        self, header: BatchHeader, first_offset: LogOffset | None = None, marker: EndMarker | None = None
    ) -> CompletedTransaction | None:
        """Check the next batch and take note of it; return the transaction that it ended, if it ended one.

        Args:
            header: with its offset in the log.
            first_offset: where the batch will lie; only the offset is known by default.
            marker: the content of a control batch; None for an empty one, which is ignored.

        Raises:
            AppendError: the producer was fenced.
            AppendError: the batch does not follow the last one.
            InvalidTransactionStateError: no transaction is open, or one is open that this is not of.
            AppendError: the marker is of an older coordinator.
        """
        if header.is_control:
            return None if marker is None else self._append_marker(header, marker)
        self._append_data(header, first_offset or LogOffset(header.base_offset))
        return None

    def _append_data(self, header: BatchHeader, first_offset: LogOffset) -> None:
        newer = self.newer
        self._check_producer_epoch(header)
        if self.origin.checks_sequences:
            self._check_sequence(header)
        offset_delta = header.last_offset - first_offset.offset
        batch = AppendedBatch(header.last_sequence, header.last_offset, offset_delta, header.max_timestamp_ms)
        newer.add_batch(header.producer_epoch, batch)
        if not header.is_transactional:
            if newer.current_txn_first_offset >= 0:
                began = newer.current_txn_first_offset
                raise InvalidTransactionStateError(f"{self._describe(header)}: not of the transaction begun at {began}")
            return
        if newer.current_txn_first_offset < 0:
            newer.current_txn_first_offset, _ = advance_transaction(-1, header, None)
            self.started.append(first_offset)

    def _append_marker(self, header: BatchHeader, marker: EndMarker) -> CompletedTransaction | None:
        newer = self.newer
        self._check_producer_epoch(header)
        if marker.coordinator_epoch < newer.coordinator_epoch:
            problem = f"coordinator epoch {marker.coordinator_epoch} is below {newer.coordinator_epoch}"
            if self.origin.fences:
                raise AppendError(
                    f"{self._describe(header)}: {problem}", code=TierErrorCode.TRANSACTION_COORDINATOR_FENCED
                )
            log.info("replicated_old_coordinator_epoch", **self._where, batch=self._describe(header), problem=problem)
        _, completed = advance_transaction(newer.current_txn_first_offset, header, marker.control_type)
        newer.end_transaction(
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=header.max_timestamp_ms,
        )
        return completed

    def _check_producer_epoch(self, header: BatchHeader) -> None:
        if header.producer_epoch >= self.newer.producer_epoch:
            return
        problem = f"epoch {header.producer_epoch} is below {self.newer.producer_epoch}"
        if self.origin.fences:
            raise AppendError(f"{self._describe(header)}: {problem}", code=TierErrorCode.INVALID_PRODUCER_EPOCH)
        log.warning("replicated_old_producer_epoch", **self._where, batch=self._describe(header), problem=problem)

    def _check_sequence(self, header: BatchHeader) -> None:
        """Refuse a sequence that does not follow the last one (Kafka: ProducerAppendInfo.checkSequence)."""
        first = header.base_sequence
        if header.producer_epoch != self.newer.producer_epoch:
            if first and self.newer.producer_epoch != _NO_EPOCH:
                self._refuse_sequence(header, f"sequence {first} in a new epoch, which begins with 0")
            return
        if self._before.producer_epoch == _NO_EPOCH:  # its records are gone, or its state expired: it may go on
            return
        last = self._last_sequence_of_epoch(header.producer_epoch)
        if not (first == last + 1 or (first == 0 and last == MAX_INT)):
            self._refuse_sequence(header, f"sequence {first} does not follow {last}")

    def _last_sequence_of_epoch(self, producer_epoch: int) -> int:
        if self.newer.batches:
            return self.newer.last_sequence
        return self._before.last_sequence if producer_epoch == self._before.producer_epoch else -1

    def _refuse_sequence(self, header: BatchHeader, problem: str) -> None:
        raise AppendError(f"{self._describe(header)}: {problem}", code=TierErrorCode.OUT_OF_ORDER_SEQUENCE)

    def _describe(self, header: BatchHeader) -> str:
        return f"{self._name}: producer {header.producer_id}, batch at offset {header.base_offset}"
