"""OwnLogRewriter: cleans one of tierd's own logs in one round, by the rules that rewrite the tier."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from tierd.log import CleanedSegment, RoundFacts, SourceSegment
from tierd.pipeline.cleaning.key_map import BYTES_PER_KEY, KeyMap
from tierd.pipeline.rewriting import (
    BatchRewriter,
    InputLog,
    KeyColumns,
    NewBatch,
    NewBatches,
    RewriteRules,
    RewriteStatistics,
    UnreadBatches,
    scan_keys,
)


class OwnLogRewriter:
    """One round of the log cleaner: it maps the keys, then rewrites the groups, one after the other.

    Attributes:
        statistics: of all groups so far.
    """

    def __init__(self, facts: RoundFacts, *, memory_bytes: int, secret: bytes) -> None:
        """Begin a round."""
        self.statistics = RewriteStatistics()
        self._first_dirty_offset = facts.first_dirty_offset
        self._secret = secret
        self._map = KeyMap(memory_bytes // BYTES_PER_KEY, secret=secret)
        self._open_producers: frozenset[int] = frozenset()
        self._unread = UnreadBatches()  # found while groups are rewritten: a round goes through all of the log
        self._rules = RewriteRules(
            now_ms=facts.now_ms,
            delete_retention_ms=facts.delete_retention_ms,
            compacts=True,
            aborted=facts.aborted,
            producers=facts.producers,
            round_end_offset=facts.first_uncleanable_offset,
        )

    def map_keys(self, dirty: Iterable[SourceSegment]) -> int | None:
        """Note the latest offset of every key in the dirty segments; see ``RoundRewriter.map_keys``.

        Raises:
            CorruptRecordError: a batch is damaged.
            InvalidRecordError: records of a batch cannot be decoded.
        """
        unmapped = next((end for end in map(self._map.add, self._keys_in(dirty)) if end is not None), None)
        if unmapped is None:
            unmapped = self._map.merge()
        if unmapped is not None:
            self._rules = replace(self._rules, mapped_end_offset=unmapped)
        return unmapped

    def rewrite(self, group: Iterable[SourceSegment], output: CleanedSegment) -> None:
        """Write what stays of a group; see ``RoundRewriter.rewrite``.

        Raises:
            CorruptRecordError: a batch is damaged or misplaced.
            InvalidRecordError: records of a batch cannot be decoded.
            OffsetOverflowError: an offset is out of reach of the output's base.
            OSError: the disk is full or failing.
        """
        rewriter = BatchRewriter(
            self._rules, self._map, _Output(output), open_producers=self._open_producers, unread=self._unread
        )
        for found in chain.from_iterable(_input(source).runs() for source in group):
            rewriter.take(found)
        for transaction in rewriter.aborted:
            output.add_aborted(transaction)
        self._open_producers = rewriter.open_producers
        self.statistics.add(rewriter.statistics)

    def _keys_in(self, dirty: Iterable[SourceSegment]) -> Iterator[KeyColumns]:
        for source in dirty:
            unread = UnreadBatches()  # met again when its group is rewritten
            for keys in scan_keys(source.pieces, self._rules, name=source.name, secret=self._secret, unread=unread):
                is_dirty = keys.offset >= self._first_dirty_offset
                yield KeyColumns(keys.hash_hi[is_dirty], keys.hash_lo[is_dirty], keys.offset[is_dirty])


class _Output:
    """Adapter that appends the batches that stay to the new segment."""

    def __init__(self, segment: CleanedSegment) -> None:
        self._segment = segment

    def append(self, batch: NewBatch) -> None:
        """Append a batch; its bytes are copied, since they may refer to a piece of the source."""
        self._segment.append(bytes(batch.data))

    def append_all(self, batches: NewBatches) -> None:
        """Append batches one by one; their bytes are copied."""
        start = 0
        for end in batches.ends:
            self._segment.append(bytes(batches.data[start:end]))
            start = end


def _input(source: SourceSegment) -> InputLog:
    return InputLog(
        name=source.name, start_offset=source.start_offset, end_offset=source.end_offset, pieces=source.pieces
    )
