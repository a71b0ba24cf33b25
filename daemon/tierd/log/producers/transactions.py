"""Opening and ending of transactions by batches, and transactions open at an offset (log-format 2.4, 4.4 and 4.5)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tierd.errors import InvalidRecordError
from tierd.log.files.disk import Readable
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.log_errors import EndMarkerError
from tierd.log.producers.producer_state import ProducerStateEntry
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.record import ControlRecordType, RecordError, parse_control_type, parse_end_marker
from tierd.log.records.record_batch import RecordBatch, read_batch

_ENDS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class EndMarker(NamedTuple):
    """Content of a transaction marker (Kafka: EndTransactionMarker)."""

    control_type: ControlRecordType  # invariant: ABORT or COMMIT
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that its marker ended; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def end_marker_of(batch: RecordBatch) -> EndMarker | None:
    """Decode the marker in a producer's control batch; None when compaction has emptied it, or for a batch of data.

    Raises:
        InvalidRecordError: its record cannot be decoded.
        EndMarkerError: it is a control record of another type.
    """
    if not batch.is_control or not batch.record_count:
        return None
    marker = next(batch.records())  # a count above 0 is a promise that ``records`` checks
    try:
        control_type = parse_control_type(marker.key)
        if control_type not in _ENDS:
            raise EndMarkerError(
                f"{batch.name}: a producer's control record of type {control_type.name} at position {batch.position}",
                remedy=f"run tierd inspect {batch.name}; only ABORT and COMMIT are a producer's",
            )
        return EndMarker(control_type, parse_end_marker(marker.value))
    except RecordError as error:
        raise InvalidRecordError(batch.name, batch.position, str(error)) from error


def read_end_marker(source: Readable, header: BatchHeader) -> EndMarker | None:
    """Return ``end_marker_of`` the batch; only the bytes of a control batch are read. Blocking."""
    if not header.is_control or not header.record_count:
        return None
    return end_marker_of(read_batch(source, header))


def advance_transaction(
    first_offset: int, header: BatchHeader, control_type: ControlRecordType | None
) -> tuple[int, CompletedTransaction | None]:
    """Return the state of a producer's transaction after one more batch, and the transaction that the batch ended.

    A transactional batch of data opens one where none is open, an ABORT or COMMIT ends it; a marker alone, and what
    compaction has emptied, leave no trace.

    Args:
        first_offset: first offset of the producer's open transaction; -1 without one.
        header: any batch of that producer.
        control_type: type of the control record; None for a batch of data or an emptied control batch.

    Returns:
        First offset of the transaction that is open now, -1 without one; and the transaction that the batch ended.
    """
    if not header.is_control:
        return (header.base_offset if header.is_transactional and first_offset < 0 else first_offset), None
    if control_type not in _ENDS:
        return first_offset, None
    if first_offset < 0:
        return -1, None
    is_aborted = control_type is ControlRecordType.ABORT
    return -1, CompletedTransaction(header.producer_id, first_offset, header.base_offset, is_aborted)


@dataclass(slots=True)
class OpenTransactions:
    """First offset of every open transaction, by producer id. Batches are applied in the order of the log.

    Readers of a log that they do not own use this class; the owner of a log uses ``ProducerStateManager``.
    """

    first_offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerStateEntry]) -> "OpenTransactions":
        """Return the state that a producer snapshot describes."""
        return cls({e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0})

    def apply(self, header: BatchHeader, control_type: ControlRecordType | None) -> CompletedTransaction | None:
        """Take note of one batch; return the transaction that it ended, if it ended one.

        Epochs are not compared: what is in the log was accepted by a leader, and a replica applies it as it is.
        """
        if not header.is_transactional:
            return None
        before = self.first_offsets.get(header.producer_id, -1)
        after, completed = advance_transaction(before, header, control_type)
        if after >= 0:
            self.first_offsets[header.producer_id] = after
        else:
            self.first_offsets.pop(header.producer_id, None)
        return completed

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the earliest open transaction; None when none is open."""
        return min(self.first_offsets.values(), default=None)


def unexplained_transactions(
    first_offsets: Mapping[int, int], known: Iterable[AbortedTransaction], *, upper: int
) -> dict[int, int]:
    """Return the transactions that begin below ``upper`` and are not known as aborted: their first offsets by producer.

    Args:
        first_offsets: transactions that are open where a log begins, by producer id.
        known: aborted transactions that the transaction indexes of the log have told.
        upper: exclusive end of what is read.
    """
    explained = {(each.producer_id, each.first_offset) for each in known}
    return {
        producer_id: first_offset
        for producer_id, first_offset in first_offsets.items()
        if first_offset < upper and (producer_id, first_offset) not in explained
    }


def stable_end_offset(producers: Iterable[ProducerStateEntry], *, end_offset: int) -> int:
    """Return the first offset of the earliest transaction that is open at ``end_offset``; ``end_offset`` without one.

    All transactions below the returned offset are decided by markers below ``end_offset``.

    Args:
        producers: as they were at ``end_offset``.
        end_offset: exclusive end of the known part of the log.
    """
    unstable = OpenTransactions.from_snapshot(producers).first_unstable_offset
    return end_offset if unstable is None else min(unstable, end_offset)
