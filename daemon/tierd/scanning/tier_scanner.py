"""TierScanner: plans reads of topics and carries them out, in the caller's event loop."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from tierd.app import Located, TierReader
from tierd.errors import OffsetOutOfRangeError, TierError
from tierd.kernels import compile_kernels_for
from tierd.metadata import copied_last_ms
from tierd.model import IsolationLevel, TimestampOffset, TopicIdPartition, uuid_from_text, uuid_to_text
from tierd.scanning.positions import EARLIEST, LATEST, AtTime, RangeBound, place_in
from tierd.scanning.range_rows import ScannedBatch, rows_of_range
from tierd.scanning.row_layout import RowLayout
from tierd.scanning.scan_plan import ScanPlan, ScanRange, ScanRequest, stored_bytes
from tierd.scanning.topic_choice import TieredTopic, chosen_partitions, incarnation, tiered_topics
from tierd.tasks import together
from tierd.tiering import FetchTask, OffsetSpec, TieredLog

_PLANNED_AT_ONCE: Final = 8  # partitions; each asks the metadata store, and for a time also the object store


@dataclass(frozen=True, slots=True)
class _Ends:
    start_offset: int  # of the log
    end_offset: int  # exclusive, for the reader's isolation level


class TierScanner:
    """Reader of whole topics, over a reader of the tier that the caller opens and closes."""

    def __init__(self, reader: TierReader) -> None:
        self._reader = reader

    @property
    def cluster_id(self) -> str:
        """Return the cluster of the tier."""
        return self._reader.identity.cluster_id

    async def topics(self) -> list[TieredTopic]:
        """Return every incarnation of every topic of the tier and of the log dirs of this host.

        Raises:
            MetadataError: the metadata store does not answer.
        """
        return tiered_topics(await self._reader.partitions(), await self._reader.local_partitions())

    async def choose(self, name: str, topic_id: UUID | None = None) -> TieredTopic:
        """Return the incarnation of a topic that a name means, or the one with ``topic_id``.

        Raises:
            UnknownPartitionError: there is no such topic.
            MetadataError: the metadata store does not answer.
        """
        topics = await self.topics()
        if topic_id is not None:
            wanted = uuid_to_text(topic_id)
            topics = [topic for topic in topics if topic.topic_id == wanted or topic.name != name]
        found = [topic for topic in topics if topic.name == name]
        copied = {topic.topic_id: await self._copied_last(topic) for topic in found if len(found) > 1}
        return incarnation(name, topics, copied)

    async def plan(self, request: ScanRequest) -> ScanPlan:
        """Fix the partitions and the offsets of a read.

        Raises:
            ScanRequestError: a position cannot be understood.
            UnknownPartitionError: there is no such topic or partition.
            OffsetOutOfRangeError: the read would begin below the log start; a range without offsets does not.
            TierError: a log or a store cannot be read.
        """
        topic = await self.choose(request.topic, request.topic_id)
        numbers = chosen_partitions(topic, request.partitions)
        partitions = [TopicIdPartition(uuid_from_text(topic.topic_id), topic.name, number) for number in numbers]
        works = {f"plan {partition}": partial(self._range, partition, request) for partition in partitions}
        ranges = await together(works, at_once=_PLANNED_AT_ONCE)
        return ScanPlan(
            topic=topic.name,
            topic_id=topic.topic_id,
            ranges=tuple(ranges),
            isolation=request.isolation,
        )

    async def rows(self, plan: ScanPlan, layout: RowLayout) -> AsyncGenerator[ScannedBatch, None]:
        """Yield the records of ``plan``: partition by partition, in order of offsets. Close it to stop early.

        Raises:
            TierError: as ``rows_of_range``.
        """
        await compile_kernels_for(plan.offset_count)  # many small partitions are bulk work, too
        for span in plan.ranges:
            if span.offset_count:
                async with contextlib.aclosing(self.range_rows(span, plan.isolation, layout)) as found:
                    async for each in found:
                        yield each

    def range_rows(
        self, span: ScanRange, isolation: IsolationLevel, layout: RowLayout
    ) -> AsyncGenerator[ScannedBatch, None]:
        """Yield the records of one range; see ``rows_of_range``."""
        return rows_of_range(self._task(span.partition), span, isolation, layout)

    async def _copied_last(self, topic: TieredTopic) -> tuple[bool, int]:
        views = [
            await self._reader.view(TopicIdPartition(uuid_from_text(topic.topic_id), topic.name, number))
            for number in topic.partitions
        ]
        return max(map(copied_last_ms, views))

    async def _range(self, partition: TopicIdPartition, request: ScanRequest) -> ScanRange:
        start_place = place_in(request.start, partition.partition, argument="start")
        end_place = place_in(request.end, partition.partition, argument="end")
        task = self._task(partition)
        log = await self._reader.tiered_log_of(partition)
        ends = _Ends(
            await self._required(task, OffsetSpec.EARLIEST, request.isolation),
            _planned_end(log, await self._required(task, OffsetSpec.LATEST, request.isolation)),
        )
        start = await self._offset(task, start_place, ends, request.isolation)
        end = await self._offset(task, end_place, ends, request.isolation)
        if start < ends.start_offset and start < end:  # an empty range lacks nothing
            raise OffsetOutOfRangeError(
                f"{partition}: offset {start} is below the log start {ends.start_offset}",
                remedy=f'read from {ends.start_offset} on, or from "{EARLIEST}"',
            )
        start = min(start, ends.end_offset)
        end = max(min(end, ends.end_offset), start)
        return ScanRange(
            partition=partition,
            start_offset=start,
            end_offset=end,
            size_bytes=await asyncio.to_thread(stored_bytes, log, start, end),
            lineage=log.lineage,
        )

    async def _offset(self, task: FetchTask, place: RangeBound, ends: _Ends, isolation: IsolationLevel) -> int:
        match place:
            case AtTime(timestamp_ms):
                found = await self._listed(task, timestamp_ms, isolation)
                return ends.end_offset if found is None else found.offset
            case int():
                return place
            case _:
                return ends.end_offset if place == LATEST else ends.start_offset

    async def _required(self, task: FetchTask, spec: OffsetSpec, isolation: IsolationLevel) -> int:
        found = await self._listed(task, spec, isolation)
        assert found is not None, "a log has a begin and an end"
        return found.offset

    async def _listed(self, task: FetchTask, timestamp_ms: int, isolation: IsolationLevel) -> TimestampOffset | None:
        found = await self._reader.fetches.list_offset(task, timestamp_ms, isolation=isolation)
        if isinstance(found, TierError):
            raise found
        return found

    def _task(self, partition: TopicIdPartition) -> FetchTask:
        return self._reader.fetch_task(Located(partition, None))


def _planned_end(log: TieredLog, latest: int) -> int:
    """Return the end of a plan that reads everything; ``latest`` is the exclusive end of the reader.

    Of a log that was cut back, the plan has the lost offsets too, so that the read ends with an error behind the
    records that are there. A committed read would else end before the lost offsets, as if it were complete.
    """
    is_complete = log.awaited(log.log_start_offset) is None
    return latest if is_complete else max(latest, log.high_watermark or 0)
