"""QueryPlanner: plans on the driver what a query reads, from options and metadata."""

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Final

import structlog

from tierd.arrow import Range
from tierd.config import load_config
from tierd.errors import RemoteResourceNotFoundError, UnknownPartitionError
from tierd.log import PartitionDirectory
from tierd.metadata import ReadableRange, copied_last_ms
from tierd.model import TopicIdPartition, TopicPartition
from tierd.pipeline.access import OpenTier, TierAccess
from tierd.pipeline.pipeline_errors import DataLossError, ReadOptionError
from tierd.pipeline.source.aborted import AbortedSearch
from tierd.pipeline.source.admission import Offsets
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.fetch_plan import chunks_to_read
from tierd.pipeline.source.local_tail import LocalTail, LocalTails
from tierd.pipeline.source.partition_snapshot import PartitionSnapshot, Snapshots, topic_ids
from tierd.pipeline.source.positions import EARLIEST, LATEST, AtOffsets, LogPlace, QueryPosition, SinceTime, given_for
from tierd.pipeline.source.read_options import ReadOptions
from tierd.pipeline.source.segment_pieces import times_of_chunks
from tierd.pipeline.source.splits import Part, QuerySpan, Split, plan_splits
from tierd.pipeline.source.time_search import offset_for_time

log = structlog.get_logger()


_NOWHERE: Final = "is neither in the tier nor behind its end in the broker's log"


def configured_access(options: ReadOptions) -> TierAccess:
    """Return the access to the tier of the configuration, with the metadata store. Blocking.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    return TierAccess.from_config(load_config(options.config, os.environ), options.config)


@contextmanager
def _gone_meanwhile() -> Iterator[None]:
    try:
        yield
    except RemoteResourceNotFoundError as error:
        raise DataLossError(f"a segment is gone meanwhile: {error}", remedy="run the query again") from error


class QueryPlanner:
    """Planner of what each task reads from the tier. For one thread."""

    def __init__(self, access: TierAccess, tier: OpenTier, options: ReadOptions) -> None:
        self._tier = tier
        self._options = options
        self._snapshots = Snapshots(tier, is_committed=options.is_committed)
        self._local = LocalTails(access.log_dirs) if options.include_local else None

    def take_snapshots(
        self, wants: Callable[[TopicPartition], bool] = lambda _: True
    ) -> dict[TopicPartition, PartitionSnapshot]:
        """Return a snapshot of each partition that the query chose and that ``wants`` accepts, in order of names.

        Raises:
            DataLossError: a segment is gone meanwhile.
            UnknownPartitionError: a topic or partition that the query names is not there.
            TierError: a store or a log dir cannot be read.
        """
        local = self._local.partitions() if self._local is not None else {}
        tails = self._tails(local)  # before the views: what the broker deletes later is in the tier
        remote, view = self._tier.partitions(), cache(self._tier.view)
        topics = {p.topic for p in (*remote, *local) if p.topic_partition in self._options.choice}
        known = {p for p in (*remote, *local) if p.topic in topics}
        ids = topic_ids(known, local, lambda partition: copied_last_ms(view(partition)))
        meant = {p.topic_partition: p for p in self._chosen({*remote, *tails}) if ids[p.topic] == p.topic_id}
        _require_named(self._options, meant)
        with _gone_meanwhile():
            return {
                name: self._snapshots.take(partition, view(partition), tails.get(partition))
                for name, partition in sorted(meant.items())
                if wants(name)
            }

    def _tails(self, local: Mapping[TopicIdPartition, PartitionDirectory]) -> dict[TopicIdPartition, LocalTail]:
        if self._local is None:
            return {}
        found = {partition: self._local.tail(local[partition]) for partition in self._chosen(local)}
        return {partition: tail for partition, tail in found.items() if tail is not None}

    def _chosen(self, partitions: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        return [p for p in partitions if p.topic_partition in self._options.choice]

    @_gone_meanwhile()
    def offsets_at(
        self, position: QueryPosition, snapshots: Mapping[TopicPartition, PartitionSnapshot], *, is_end: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offset that ``position`` means in each partition, which may not be readable.

        With ``is_end`` the query ends there: the latest offset is then behind those that a local log has lost.

        Raises:
            DataLossError: a segment is gone meanwhile.
            ReadOptionError: the position has no value for a partition, or no record is young enough.
            TierError: a store or a log dir cannot be read.
        """
        found: dict[TopicPartition, int] = {}
        for name, snapshot in snapshots.items():
            latest = snapshot.wanted_end_offset if is_end else snapshot.end_offset
            found[name] = self._offset_at(position, snapshot, latest=latest)
        return found

    def _offset_at(self, position: QueryPosition, snapshot: PartitionSnapshot, *, latest: int) -> int:
        match position:
            case LogPlace():
                return snapshot.start_offset if position is LogPlace.EARLIEST else latest
            case AtOffsets():
                given = given_for(snapshot.name, position.offsets, what="offset")
                return {EARLIEST: snapshot.start_offset, LATEST: latest}.get(given, given)
            case SinceTime():
                timestamp_ms = position.of(snapshot.name)
                found = offset_for_time(self._tier, snapshot, timestamp_ms)
                if found is None and not position.or_latest:
                    raise ReadOptionError(
                        f"{snapshot.name} has no record with timestamp {timestamp_ms} or later",
                        remedy="begin earlier, or set startingOffsetsByTimestampStrategy to latest",
                    )
                return latest if found is None else min(found, latest)

    @_gone_meanwhile()
    def splits(
        self,
        snapshots: Mapping[TopicPartition, PartitionSnapshot],
        starts: Offsets,
        ends: Offsets,
        bounds: RecordBounds,
    ) -> list[Split]:
        """Return the tasks that read ``[start, end)`` of each partition, as far as ``bounds`` may want it.

        Raises:
            DataLossError: offsets are not there, and the query is to fail then; or a segment is gone meanwhile.
            TierError: a store or a log dir cannot be read.
        """
        spans = [self.span(snapshots[name], starts[name], end) for name, end in ends.items()]
        wanted = [narrowed(self._tier, span, bounds) for span in spans]
        options = self._options
        found = plan_splits(
            wanted,
            target_bytes=options.partition_bytes,
            min_splits=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        if not options.is_committed:
            return found
        searches = {name: AbortedSearch(self._tier, snapshots[name]) for name in ends}
        for name, search in searches.items():
            search.prepare([split for split in found if split.name == name])
        return [
            replace(s, aborted=searches[s.name].touching(s.parts[0].start_offset, s.parts[-1].end_offset))
            for s in found
        ]

    def span(self, snapshot: PartitionSnapshot, start_offset: int, end_offset: int) -> QuerySpan:
        """Return the readable part of ``[start_offset, end_offset)`` of a partition, with its locations.

        Raises:
            DataLossError: some of the offsets are not there, and the query is to fail then.
        """
        start, end = max(start_offset, snapshot.start_offset), min(end_offset, snapshot.end_offset)
        if start_offset < min(start, end_offset):
            self._lose(snapshot.name, start_offset, min(start, end_offset), "was removed by retention")
        if end_offset > max(end, start_offset):
            self._lose(snapshot.name, max(end, start_offset), end_offset, "is not there")
        parts = list(_parts(snapshot, start, end))
        at = start
        for begins, ends in [*((p.start_offset, p.end_offset) for p in parts), (end, end)]:
            if begins > at:
                self._lose(snapshot.name, at, begins, "is not in the tier" if self._local is None else _NOWHERE)
            at = max(at, ends)
        return QuerySpan(snapshot.name, start, end, tuple(p for p in parts if p.size_bytes))

    def _lose(self, name: TopicPartition, start_offset: int, end_offset: int, why: str) -> None:
        problem = f"{name}: [{start_offset}, {end_offset}) {why}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                problem,
                remedy=f"look with tierd explain {name} {start_offset}; failOnDataLoss=false reads on without it",
            )
        log.warning("offsets_skipped", partition=str(name), problem=problem)


def _parts(snapshot: PartitionSnapshot, start: int, end: int) -> Iterable[Part]:
    for readable in snapshot.readable_ranges(start, end):
        metadata = readable.metadata
        share = (readable.end_offset - readable.start_offset) / (metadata.end_offset + 1 - metadata.start_offset)
        size = max(round(metadata.size_bytes * share), 1) if metadata.size_bytes else 0
        yield Part(readable, readable.start_offset, readable.end_offset, size)
    local_start = snapshot.local_start(start)
    if snapshot.tail is not None and local_start is not None and local_start < end:
        yield Part(snapshot.tail, local_start, end, max(snapshot.tail.size_bytes(local_start), 1))


def _require_named(options: ReadOptions, found: Mapping[TopicPartition, TopicIdPartition]) -> None:
    topics = {name.topic for name in found}
    missing = sorted(options.choice.required_topics - topics)
    missing += [str(name) for name in sorted((options.choice.assigned or frozenset()) - set(found))]
    if missing:
        near = difflib.get_close_matches(missing[0], sorted(topics), n=1)
        raise UnknownPartitionError(
            f"the tier does not know {', '.join(missing)}{f'; did you mean {near[0]}?' if near else ''}",
            remedy="tierd status lists what is tiered; a topic gets into the tier with its first rolled segment",
        )


def narrowed(tier: OpenTier, span: QuerySpan, bounds: RecordBounds) -> QuerySpan:
    """Return ``span`` without parts that cannot hold wanted records, and with the other parts cut to the offsets.

    Raises:
        RemoteResourceNotFoundError: a segment is gone meanwhile.
        RemoteStorageError: the store failed.
    """
    low, high = max(span.start_offset, bounds.offsets.low), min(span.end_offset, bounds.offsets.high + 1)
    parts = [part.cut(low, high) for part in span.parts if part.start_offset < high and part.end_offset > low]
    if not bounds.timestamps_ms.is_all:
        parts = _narrowed_by_time(tier, parts, bounds.timestamps_ms)
    return replace(span, parts=tuple(parts))


def _narrowed_by_time(tier: OpenTier, parts: Sequence[Part], times: Range) -> list[Part]:
    """Return the parts that may hold records of such times; manifests are read unless the metadata rules a part out."""
    remote = [
        (part, part.source.metadata)
        for part in parts
        if isinstance(part.source, ReadableRange) and part.source.metadata.max_timestamp_ms >= times.low
    ]
    manifests = tier.manifests([metadata for _, metadata in remote])
    kept = []
    for (part, _), manifest in zip(remote, manifests, strict=True):
        wanted = chunks_to_read(times_of_chunks(manifest), times, manifest.size_bytes)
        if wanted:
            share = sum(piece.end - piece.start for piece in wanted) / manifest.size_bytes
            kept.append(replace(part, size_bytes=max(round(part.size_bytes * share), 1)))
    return [*kept, *(part for part in parts if isinstance(part.source, LocalTail))]
