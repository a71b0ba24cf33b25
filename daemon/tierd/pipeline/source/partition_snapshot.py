"""View of one partition that a query has, pinned when the query is planned."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final
from uuid import UUID

from tierd.log import parse_producer_snapshot, stable_end_offset
from tierd.metadata import OwnBranch, PartitionView, ReadableRange, effective_lineage
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.pipeline.access import OpenTier
from tierd.pipeline.source.local_tail import LocalTail

_KEPT: Final = 10_000


@dataclass(frozen=True)
class PartitionSnapshot:
    """Segments of the tier and of the local log that a query may read.

    Attributes:
        branch: the remote segments, of the effective lineage.
        tail: the local log; None where it is not to be read.
        end_offset: exclusive end of the offsets that the query's isolation allows; at least ``start_offset``.
    """

    partition: TopicIdPartition
    branch: OwnBranch
    tail: LocalTail | None
    end_offset: int

    @property
    def name(self) -> TopicPartition:
        """Return the partition without its incarnation."""
        return self.partition.topic_partition

    @cached_property
    def start_offset(self) -> int:
        """Return the first offset that may be read, in the tier or the local log."""
        view, first_remote = self.branch.view, [m.first_readable_offset for m in self.branch.finished[:1]]
        first_local = [self.tail.start_offset] if self.tail is not None and self.tail.scan.segments else []
        if not first_remote and view.log_start_offset is None and self.tail is not None:
            return max(self.tail.start_offset, self.tail.checkpointed_start or 0)
        return max(view.log_start_offset or 0, min([*first_remote, *first_local], default=0))

    @property
    def known_end_offset(self) -> int:
        """Return the exclusive end of the log as the tier proves it; at least ``start_offset``.

        Offsets that a local log has lost when it was cut back count, because the broker may get their records back.
        """
        return max(self.branch.end_offset, self.start_offset, self._lost_to)

    @property
    def wanted_end_offset(self) -> int:
        """Return the exclusive end of a query that reads everything: offsets that are lost are missed by the query."""
        return max(self.end_offset, self._lost_to)

    @property
    def _lost_to(self) -> int:
        """Return the exclusive end of the offsets that the local log has lost and the tier lacks; 0 without any."""
        lost_to = 0 if self.tail is None else self.tail.lost_to or 0
        return lost_to if lost_to > self.branch.end_offset else 0

    @property
    def remote_end_offset(self) -> int:
        """Return the exclusive end of the offsets that are read from the tier."""
        return min(self.branch.end_offset, self.end_offset)

    def readable_ranges(self, start_offset: int, end_offset: int) -> list[ReadableRange]:
        """Return the ranges of remote segments in ``[start_offset, end_offset)``, ascending."""
        return list(self.branch.readable_ranges(start_offset, min(end_offset, self.branch.end_offset)))

    def local_start(self, start_offset: int) -> int | None:
        """Return the offset, from ``start_offset`` on, at which the local log continues the tier, or None."""
        if self.tail is None or not self.tail.scan.segments:
            return None
        return max(self.branch.end_offset, self.tail.start_offset, start_offset)


class Snapshots:
    """Maker of snapshots, which remembers stable ends, so that later snapshots cost little. For one thread."""

    def __init__(self, tier: OpenTier, *, is_committed: bool) -> None:
        self._tier = tier
        self._is_committed = is_committed
        self._stable: dict[UUID, int] = {}

    def take(self, partition: TopicIdPartition, view: PartitionView, tail: LocalTail | None) -> PartitionSnapshot:
        """Take a snapshot of a partition.

        Args:
            partition: the partition.
            view: remote segments, read after ``tail``: what the broker deletes in between is in the tier already.
            tail: the local log; None where it is not to be read.

        Raises:
            RemoteStorageError: the store failed.
        """
        branch = OwnBranch(view, effective_lineage(view, tail.scan.lineage if tail else Lineage()))
        end = self._stable_end(branch) if self._is_committed else branch.end_offset
        if tail is not None:
            end = max(end, tail.last_stable_offset if self._is_committed else tail.high_watermark)
        found = PartitionSnapshot(partition, branch, tail, end)
        return replace(found, end_offset=max(end, found.start_offset))

    def _stable_end(self, branch: OwnBranch) -> int:
        """Return the begin of the earliest transaction that is open behind the last whole segment, else its end.

        Only decided data is copied, but the marker may stand behind the last segment. Without a segment the end is 0.
        """
        last = branch.last_whole
        if last is None:
            return 0
        if last.segment.id not in self._stable:
            if len(self._stable) >= _KEPT:
                self._stable.clear()
            self._stable[last.segment.id] = self._stable_end_of(last)
        return self._stable[last.segment.id]

    def _stable_end_of(self, metadata: RemoteLogSegmentMetadata) -> int:
        data = self._tier.read_index(metadata, IndexType.PRODUCER_SNAPSHOT)
        producers = parse_producer_snapshot(data, f"{metadata.segment} producer snapshot")
        return stable_end_offset(producers, end_offset=metadata.end_offset + 1)


def topic_ids(
    known: Iterable[TopicIdPartition],
    local: Collection[TopicIdPartition],
    copied_last: Callable[[TopicIdPartition], tuple[bool, int]],
) -> dict[str, UUID]:
    """Return the incarnation that the name of each topic means: the one in a log dir, else the one copied last.

    One for all partitions of a topic: the next incarnation may have copied none of a partition yet, and the former one
    is not meant then.

    Args:
        known: every partition of the topics, in the tier or in a log dir.
        local: the partitions in the log dirs of this host, where those are read.
        copied_last: the ``copied_last_ms`` of a partition; not called for a topic with one incarnation.
    """
    topics: defaultdict[str, defaultdict[UUID, set[TopicIdPartition]]] = defaultdict(lambda: defaultdict(set))
    for each in known:
        topics[each.topic][each.topic_id].add(each)
    here = {(each.topic, each.topic_id) for each in local}

    def rank(topic: str, topic_id: UUID) -> tuple[bool, tuple[bool, int], UUID]:
        return (topic, topic_id) in here, max(map(copied_last, topics[topic][topic_id])), topic_id

    return {
        topic: next(iter(found)) if len(found) == 1 else max(found, key=partial(rank, topic))
        for topic, found in topics.items()
    }
