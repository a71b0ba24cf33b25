"""Objects and rows of a tier side by side, both ascending by key: a page of the one, a partition of the other."""

import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tierd.errors import RemoteFormatError
from tierd.metadata import Claim
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import ObjectInfo, ObjectKeyFactory, ObjectStore, UnfinishedUpload
from tierd.tiering.auditing.stored_segments import Objects, SegmentPlace, stored_segments
from tierd.tiering.auditing.tier_findings import Finding, Severity
from tierd.tiering.reading.tiered_log import TieredLog


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Findings about one segment, object, upload or partition.

    Attributes:
        findings: at least one.
        partition: the partition that the findings concern; None for an object that belongs to no partition.
        place: the place of the segment that the findings concern; None where they concern no segment.
        row: the row of that segment; None for a segment without a row.
        objects: the objects of that segment.
        upload: the upload that was begun and never ended; None where the findings concern no upload.
        log: the tier and the local log, where the findings are gaps or overlaps of the partition; otherwise None.
    """

    findings: tuple[Finding, ...]
    partition: TopicIdPartition | None = None
    place: SegmentPlace | None = None
    row: RemoteLogSegmentMetadata | None = None
    objects: Objects = field(default_factory=dict)
    upload: UnfinishedUpload | None = None
    log: TieredLog | None = None


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """A segment as row and as objects, either of which may lack the other."""

    place: SegmentPlace
    row: RemoteLogSegmentMetadata | None
    objects: Objects
    claim: Claim | None


@dataclass(slots=True)
class OpenRows:
    """Rows of an open partition that are still to come, ascending."""

    partition: TopicIdPartition | None = None
    claim: Claim | None = None
    rows: deque[RemoteLogSegmentMetadata] = field(default_factory=deque)

    def before(self, place: SegmentPlace) -> Iterator[SegmentPair]:
        """Take out and yield the rows below ``place``, without objects."""
        while self.rows and SegmentPlace.of_row(self.rows[0]) < place:
            row = self.rows.popleft()
            yield SegmentPair(SegmentPlace.of_row(row), row, {}, self.claim)

    def rest(self) -> Iterator[SegmentPair]:
        """Take out and yield all rows that are left, without objects."""
        while self.rows:
            row = self.rows.popleft()
            yield SegmentPair(SegmentPlace.of_row(row), row, {}, self.claim)

    def take(self, place: SegmentPlace) -> RemoteLogSegmentMetadata | None:
        """Take out and return the row at ``place``; None when there is none."""
        return self.rows.popleft() if self.rows and SegmentPlace.of_row(self.rows[0]) == place else None


class Prefixes:
    """The prefixes to walk: the configured one, and every other one that a row names; and the forms of keys there."""

    def __init__(self, configured: ObjectKeyFactory) -> None:
        self._configured = configured
        self._known = {configured}
        self._coming = deque([configured])

    def sort_out(
        self, rows: Collection[RemoteLogSegmentMetadata], keys: ObjectKeyFactory
    ) -> tuple[list[RemoteLogSegmentMetadata], list[AuditReport]]:
        """Return the rows that lie under ``keys``, and reports of rows of a later tierd, whose place is unknown.

        Prefixes that the rows name join the walk. The reports come with the configured keys alone, so once.
        """
        mine: list[RemoteLogSegmentMetadata] = []
        unknown: list[AuditReport] = []
        for row in rows:
            try:
                stored = self._configured.for_custom_metadata(row.custom_metadata, row.segment.topic_id_partition.topic)
            except RemoteFormatError as error:
                if keys == self._configured:
                    finding = Finding(Severity.ERROR, "unknown-format", str(error), str(row.segment), error.remedy)
                    unknown.append(AuditReport((finding,), row.segment.topic_id_partition))
                continue
            self.add(stored)
            if stored == keys:
                mine.append(row)
        return mine, unknown

    def add(self, keys: ObjectKeyFactory) -> None:
        """Add a prefix, or a form of keys below one, to the walk."""
        if keys not in self._known:
            self._known.add(keys)
            self._coming.append(keys)

    def next(self) -> ObjectKeyFactory | None:
        """Return the next prefix to walk; None after the last."""
        return self._coming.popleft() if self._coming else None


OpenPartition = Callable[[TopicIdPartition], Awaitable[tuple[OpenRows, list[AuditReport]]]]
"""Reader of a partition's rows below the prefix that is walked, and of the reports about the whole partition."""


async def side_by_side(
    store: ObjectStore,
    keys: ObjectKeyFactory,
    root: str,
    known: Sequence[TopicIdPartition],
    open_rows: OpenPartition,
    *,
    other_form: Callable[[ObjectKeyFactory], None],
) -> AsyncGenerator[SegmentPair | AuditReport | ObjectInfo, None]:
    """Yield every segment once, in the order of its keys; reports about partitions; objects that are no segment's.

    Args:
        store: the objects.
        keys: the keys below the prefix that is walked, in the form that is compared.
        root: the beginning of the keys that are compared.
        known: the partitions with rows.
        open_rows: called for each of them, when the walk comes to it.
        other_form: is called with the form of keys that are left out.

    Raises:
        RemoteStorageError: the store failed.
        MetadataError: the metadata store failed.
    """
    coming = deque(sorted(known, key=lambda partition: keys.partition_prefix(partition).encode()))
    opened = OpenRows()
    async with contextlib.aclosing(stored_segments(store, keys, root, other_form)) as listing:
        async for found in listing:
            if isinstance(found, ObjectInfo):
                yield found
                continue
            here = keys.partition_prefix(found.place.partition).encode()
            while coming and keys.partition_prefix(coming[0]).encode() <= here:
                for pair in opened.rest():
                    yield pair
                opened, reports = await open_rows(coming.popleft())
                for report in reports:
                    yield report
            is_opened = opened.partition == found.place.partition
            for pair in opened.before(found.place) if is_opened else opened.rest():
                yield pair
            yield SegmentPair(found.place, opened.take(found.place), found.objects, opened.claim if is_opened else None)
    for pair in opened.rest():
        yield pair
    while coming:
        opened, reports = await open_rows(coming.popleft())
        for report in reports:
            yield report
        for pair in opened.rest():
            yield pair
