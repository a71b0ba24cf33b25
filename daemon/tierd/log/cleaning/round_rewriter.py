"""RoundRewriter: the promise of the rules that decide in a round of the log cleaner which records stay.

The rules are in ``tierd.pipeline``, which also rewrites the tier; the application hands them in.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tierd.log.cleaning.cleaned_segment import CleanedSegment
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.producer_state import ProducerStateEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A rolled segment whose records are read once, from the first to the last.

    Attributes:
        name: for errors.
        start_offset: no batch begins below it.
        end_offset: no batch ends above it; inclusive.
        pieces: the consecutive bytes of its ``.log``, cut anywhere.
    """

    name: str
    start_offset: int
    end_offset: int
    pieces: Iterable[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """Facts about the round and the log that decide which records and batches stay.

    Attributes:
        now_ms: time of the round; delete horizons before it, or at it, are past.
        delete_retention_ms: time for which tombstones and markers stay once they have a delete horizon.
        aborted: every aborted transaction of the log.
        producers: the state of active producers, by id; each protects its last batch.
        first_dirty_offset: keys are mapped from this offset on.
        first_uncleanable_offset: exclusive end of the round; the batch that ends there stays, even without records.
    """

    now_ms: int
    delete_retention_ms: int
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, ProducerStateEntry]
    first_dirty_offset: int
    first_uncleanable_offset: int


class RoundRewriter(Protocol):
    """One round over one log: first the map of its keys, then each group. One thread at a time; bounded memory."""

    def map_keys(self, dirty: Iterable[SourceSegment]) -> int | None:
        """Note the latest offset of every key in the dirty segments.

        Returns:
            The first offset whose key found no room; None when all of them were mapped.

        Raises:
            CorruptRecordError: a batch is damaged.
            InvalidRecordError: records of a batch cannot be decoded.
        """

    def rewrite(self, group: Iterable[SourceSegment], output: CleanedSegment) -> None:
        """Write the records of a group that stay; the groups of a round come in ascending order.

        Raises:
            CorruptRecordError, InvalidRecordError: as ``map_keys``.
            OffsetOverflowError: an offset is out of reach of the output's base.
            OSError: the disk is full or failing.
        """


StartRewriting = Callable[[RoundFacts], RoundRewriter]
