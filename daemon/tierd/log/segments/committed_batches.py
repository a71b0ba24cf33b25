"""Batches of records that a consumer sees: without markers, and for a committed read without aborted transactions.

Kafka: the consumer's CompletedFetch.
"""

from collections.abc import Iterable, Iterator

from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.records.record import ControlRecordType
from tierd.log.records.record_batch import RecordBatch


def data_batches(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Leave out control batches: markers are no records of a producer."""
    return (batch for batch in batches if not batch.is_control)


def committed_batches(batches: Iterable[RecordBatch], aborted: Iterable[AbortedTransaction]) -> Iterator[RecordBatch]:
    """Leave out control batches and what aborted transactions wrote.

    Args:
        batches: ascending, below the last stable offset.
        aborted: every aborted transaction that overlaps ``batches``, in any order, perhaps twice.
    """
    upcoming = sorted(set(aborted), key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()  # producers whose transaction at this point will be aborted
    for batch in batches:
        while upcoming and upcoming[-1].first_offset <= batch.last_offset:
            aborting.add(upcoming.pop().producer_id)
        if batch.is_control:
            if batch.control_type() is ControlRecordType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch
