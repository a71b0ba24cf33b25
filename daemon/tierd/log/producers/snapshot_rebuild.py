"""Rebuild of a segment's producer snapshot and transaction index from the snapshot before it (log-format 6.6)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.log.files.disk import OsDisk
from tierd.log.files.source import open_source
from tierd.log.indexes.transaction_index import AbortedTransaction, encode_entry
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

_NO_PRODUCER_EXPIRES_MS = 0
_FEWEST_BUCKETS = 16


@dataclass(frozen=True, slots=True)
class RebuiltProducers:
    """Result of a replay, as the bytes of the files that a broker would have.

    Attributes:
        snapshot: the producer snapshot at the end of the last segment.
        transaction_index: of the last of the segments; empty when no transaction was aborted in it.
    """

    snapshot: bytes
    transaction_index: bytes


def rebuild_producers(
    logs: Sequence[Path], before: Iterable[ProducerStateEntry], *, start_offset: int, end_offset: int
) -> RebuiltProducers:
    """Replay consecutive segments; the bytes equal the broker's, unless the broker expired a producer since.

    Nothing is written, and no producer expires: a producer that a broker would expire does no harm. CRCs are not
    checked here. Blocking.

    Args:
        logs: ascending, whole, under any names.
        before: the producers at ``start_offset``; none where the log begins there.
        start_offset: base of the first segment.
        end_offset: of the last segment, inclusive.

    Raises:
        CorruptRecordError: an impossible or incomplete batch, or a marker that cannot be decoded.
        EndMarkerError: a marker that neither aborts nor commits.
        InvalidTransactionStateError: a batch within a transaction that it is not of, so ``before`` is not true.
        SegmentChangedError: a file vanished, or changed while it was read.
        LogDirOfflineError: it cannot be read.
    """
    producers = ProducerStateManager(
        OsDisk(),
        logs[-1].parent,
        topic_partition=TopicPartition("segment", 0),
        config=LogConfig(),
        snapshot_offsets=(),
    )
    producers.load(before, end_offset=start_offset, now_ms=_NO_PRODUCER_EXPIRES_MS)
    aborted: list[AbortedTransaction] = []
    for log in logs:
        aborted = _replay(log, producers)
    producers.update_map_end_offset(end_offset + 1)
    return RebuiltProducers(
        encode_producer_snapshot(_in_brokers_order(producers.entries)), b"".join(map(encode_entry, aborted))
    )


def _replay(log: Path, producers: ProducerStateManager) -> list[AbortedTransaction]:
    aborted = []
    with open_source(log) as source:
        for header in iter_headers(source, may_be_torn=False):
            if header.producer_id >= 0:
                transaction = producers.replay(header, read_end_marker(source, header))
                if transaction is not None:
                    aborted.append(transaction)
        source.require_unchanged()
    return aborted


def _in_brokers_order(entries: Sequence[ProducerStateEntry]) -> tuple[ProducerStateEntry, ...]:
    """Return the entries in the order of a ``java.util.HashMap`` by producer id, in which a broker writes them."""
    buckets = _FEWEST_BUCKETS
    while len(entries) > buckets * 3 // 4:
        buckets *= 2

    def bucket(entry: ProducerStateEntry) -> int:
        folded = (entry.producer_id ^ entry.producer_id >> 32) & 0xFFFF_FFFF
        return (folded ^ folded >> 16) & buckets - 1

    return tuple(sorted(entries, key=bucket))  # stable: within a bucket the first seen comes first
