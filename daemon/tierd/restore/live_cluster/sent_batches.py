"""SentBatches: batches that the target has already, matched with those that the tier gives; pure."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tierd.errors import RefusedError
from tierd.log import MAX_SEQUENCE
from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import OutgoingBatch

RESTORE_ANEW: Final = "restore into a new topic with --rename and another --journal, and delete the half-restored one"
"""Remedy where a restore cannot go on."""


class OwnBatch(NamedTuple):
    """Batch of our producer in the target.

    Attributes:
        span: offsets of the batch, which are sequence numbers, too; compaction changes neither.
        record_count: those that compaction has left.
    """

    base_offset: int
    base_sequence: int
    span: int
    record_count: int
    max_timestamp_ms: int

    @property
    def end_offset(self) -> int:
        """Return the offset behind the batch."""
        return self.base_offset + self.span


class SentBatches:
    """Batches of one partition in the target, in order; False when all are matched."""

    def __init__(self, name: TopicPartition, found: Iterable[OwnBatch], *, end_offset: int) -> None:
        """Keep the batches.

        Args:
            name: the partition, for errors.
            found: in the order of the log.
            end_offset: in the target; the batches that the caller does not match lie below it.
        """
        self._name = name
        self._found = deque(found)
        self._end_offset = end_offset

    def __bool__(self) -> bool:
        return bool(self._found)

    def match(self, batch: OutgoingBatch) -> int:
        """Return the first offset of ``batch`` in the target; -1 where compaction of the target has removed it.

        The batches come in the order of the tier, and the caller asks only while this is True.

        Raises:
            RefusedError: the next batch in the target is another one, or was taken without ``batch`` before it.
        """
        own = self._found[0]
        ahead = ahead_of(own.base_sequence, batch.base_sequence)
        if ahead >= batch.record_count:
            # Records that compaction has removed leave their offsets. A leader that had forgotten the producer takes
            # any sequence number, and then there is no room for them.
            if own.base_offset - self._end_offset < ahead:
                raise RefusedError(
                    f"{self._name}: the target has taken the records from sequence {own.base_sequence} on at "
                    f"{own.base_offset} without the {ahead} before them",
                    remedy=RESTORE_ANEW,
                )
            return -1
        is_same = not ahead and own.span == batch.record_count
        is_whole = own.record_count == own.span
        if not is_same or (is_whole and own.max_timestamp_ms != batch.max_timestamp_ms):
            raise self._differs(
                f"the target has {own.span} records of sequence {own.base_sequence} at {own.base_offset}, "
                f"the tier gives {batch.record_count} records of sequence {batch.base_sequence}"
            )
        self._found.popleft()
        self._end_offset = own.end_offset
        return own.base_offset

    def require_all_matched(self) -> None:
        """Raise unless every batch was matched.

        Raises:
            RefusedError: the tier gives fewer batches than the target has.
        """
        if self._found:
            raise self._differs(
                f"the target has a batch at {self._found[0].base_offset} that the tier does not give any more"
            )

    def _differs(self, text: str) -> RefusedError:
        return RefusedError(f"{self._name}: the tier has changed since the last run: {text}", remedy=RESTORE_ANEW)


def ahead_of(sequence: int, other: int) -> int:
    """Return by how many records ``sequence`` lies behind ``other`` in the order of sending; negative before it.

    Sequence numbers begin at 0 again behind the largest. Two that are compared are less than 2^30 records apart.
    """
    ahead = (sequence - other) & MAX_SEQUENCE
    return ahead if ahead <= MAX_SEQUENCE // 2 else ahead - MAX_SEQUENCE - 1
