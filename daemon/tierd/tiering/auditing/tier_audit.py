"""TierAudit: compares a whole tier with its metadata (``tierd verify``).

The listing of the bucket and the rows of the metadata are walked side by side, both ascending by key, so that memory
holds a page of the one and a partition of the other. A pair that looks wrong is read again by itself: the row before
and after, and every object by its own name. A listing may be old, and daemons copy and delete meanwhile. Only a fault
that stays the same is reported.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from typing import Final

from tierd.clock import Clock
from tierd.errors import (
    RemoteAccessError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteUnauthenticatedError,
)
from tierd.metadata import (
    Claim,
    PartitionView,
    is_tier_known,
    list_partitions,
    read_partition,
    read_segment,
    read_store_identity,
)
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import (
    CATALOGUE,
    ERASURE_REPORT,
    ObjectInfo,
    ObjectKeyFactory,
    UnfinishedUpload,
    read_tier_identity,
    read_whole,
)
from tierd.tiering.auditing.deep_sample import DeepChoice, DeepSample
from tierd.tiering.auditing.log_start_check import disagreement, stray
from tierd.tiering.auditing.segment_check import Retained, SegmentCheck
from tierd.tiering.auditing.side_by_side import AuditReport, OpenRows, Prefixes, SegmentPair, side_by_side
from tierd.tiering.auditing.stored_segments import SegmentPlace, place_of, stored_objects
from tierd.tiering.auditing.tier_findings import AuditLimits, Finding, Severity, offset_findings
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.rebuilding.bucket import UNAUTHENTICATED
from tierd.tiering.stored_tier import StoredTier

_CHECKED_AT_ONCE: Final = 32
_DEEP_AT_ONCE: Final = 4
_LOGS_AT_ONCE: Final = 2 * _DEEP_AT_ONCE  # whose segments are checked, or wait for it
_READS: Final = 4  # of a segment with a fault; a segment that still changes is being worked on


class TierAudit:
    """Audit of a tier, which only reads. It may run beside daemons, whose work under way is no finding.

    Args:
        tier: the tier in its two stores.
        tiered_log: reads the tier and the local log of a partition anew.
        clock: time.
        limits: the ages up to which work under way is no finding.
        retained: returns the segments whose objects the store is known to retain.
        on_progress: is called with lines about the progress.
    """

    def __init__(
        self,
        tier: StoredTier,
        *,
        tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]],
        clock: Clock,
        limits: AuditLimits,
        retained: Retained,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = tier.objects
        self._storage = tier.segments
        self._keys = tier.object_keys
        self._rows = tier.rows
        self._metadata_keys = tier.row_keys
        self._tiered_log = tiered_log
        self._clock = clock
        self._limits = limits
        self._check = SegmentCheck(
            tier.objects,
            tier.segments,
            cluster_id=tier.object_keys.cluster_id,
            clock=clock,
            limits=limits,
            retained=retained,
            tiered_log=self._log_of,
        )
        self._logs: dict[TopicIdPartition, TieredLog] = {}
        self._on_progress = on_progress
        self._segments = 0

    async def run(
        self, only: Collection[TopicIdPartition] | None = None, *, deep: bool | DeepChoice = False
    ) -> AsyncGenerator[AuditReport, None]:
        """Yield the faults of the tier itself, then those of each partition, then unfinished uploads.

        Args:
            only: these partitions; None checks everything below the prefix, known to the metadata or not.
            deep: download every segment, or the chosen ones, and check every batch, chunk and index.

        Raises:
            RemoteStorageError: the store does not answer; what it answers wrongly is a finding.
            MetadataError: the metadata store does not answer, or is damaged.
        """
        choice = DeepSample(float(deep)) if isinstance(deep, bool) else deep
        if findings := await self._identity():
            yield AuditReport(findings)
        known = await list_partitions(self._rows, self._metadata_keys) if only is None else sorted(only)
        prefixes = Prefixes(self._keys)
        for partition in known if only is not None else ():
            for form in self._keys.forms(partition.topic):
                prefixes.add(form)
        while (keys := prefixes.next()) is not None:
            is_foreign = await self._is_foreign(keys)
            roots = [keys.root] if only is None else [keys.partition_prefix(partition) for partition in known]
            for root in roots:
                ours = [partition for partition in known if keys.partition_prefix(partition).startswith(root)]
                async with contextlib.aclosing(self._walk(keys, root, ours, prefixes, choice)) as reports:
                    async for report in reports:
                        if report.row is not None or not is_foreign:
                            yield report
        for report in await self._uploads(only):
            yield report

    async def knows_a_segment(self) -> bool:
        """Return whether a readable segment of this metadata lies below the configured prefix, which is ours then.

        Raises:
            RemoteStorageError: the store does not answer.
        """
        for partition in await list_partitions(self._rows, self._metadata_keys):
            log = await self._tiered_log(partition)
            for row in log.finished:
                if not self._storage.has_configured_prefix(row):
                    continue
                try:
                    await self._storage.read_manifest(row)
                except RemoteStorageError as error:
                    if error.retriable or isinstance(error, RemoteAccessError):
                        raise
                    continue
                return True
        return False

    # ------------------------------------------------------------ the walk

    async def _walk(
        self,
        keys: ObjectKeyFactory,
        root: str,
        known: Sequence[TopicIdPartition],
        prefixes: "Prefixes",
        choice: DeepChoice,
    ) -> AsyncGenerator[AuditReport, None]:
        """Walk one prefix, and yield the faults that stay."""
        waiting: list[SegmentPair] = []
        width = _DEEP_AT_ONCE if choice.downloads else _CHECKED_AT_ONCE

        async def open_rows(partition: TopicIdPartition) -> tuple[OpenRows, list[AuditReport]]:
            rows, reports = await self._open(keys, partition, prefixes)
            choice.open(partition, rows.rows)
            return rows, reports

        async with contextlib.aclosing(
            side_by_side(self._store, keys, root, known, open_rows, other_form=prefixes.add)
        ) as pairs:
            async for each in pairs:
                if isinstance(each, ObjectInfo):
                    if (foreign := await self._foreign(keys, each)) is not None:
                        yield foreign
                    continue
                if isinstance(each, AuditReport):
                    yield each
                    continue
                waiting.append(each)
                if len(waiting) == width:
                    for report in await self._checked(keys, waiting, choice):
                        yield report
                    waiting = []
        for report in await self._checked(keys, waiting, choice):
            yield report

    async def _log_of(self, partition: TopicIdPartition) -> TieredLog:
        """Return tier and local log of a partition that is being walked, as they were when its rows were read."""
        return self._logs.get(partition) or await self._tiered_log(partition)

    async def _open(
        self, keys: ObjectKeyFactory, partition: TopicIdPartition, prefixes: "Prefixes"
    ) -> tuple["OpenRows", list[AuditReport]]:
        """Read a partition's rows; report gaps and overlaps of its offsets, and faults of its log start record."""
        log = await self._tiered_log(partition)
        while len(self._logs) >= _LOGS_AT_ONCE:
            del self._logs[next(iter(self._logs))]
        self._logs[partition] = log
        mine, reports = prefixes.sort_out(log.view.list(), keys)
        if keys == self._keys and (found := tuple(offset_findings(log))):
            again = await self._tiered_log(partition)  # a segment may have left the local log while we read the tier
            lasting = set(found) & set(offset_findings(again))
            if findings := tuple(finding for finding in found if finding in lasting):
                reports.append(AuditReport(findings, partition, log=again))
        if keys == self._keys and (report := await self._log_start(partition, log.view)) is not None:
            reports.append(report)
        return OpenRows(partition, log.view.claim, deque(sorted(mine, key=SegmentPlace.of_row))), reports

    async def _log_start(self, partition: TopicIdPartition, view: PartitionView) -> AuditReport | None:
        """Return the fault of a partition's log start record that a second read of row and record confirms."""
        key, records = self._keys.log_start(partition), self._storage.log_starts
        try:
            if disagreement(view.row, await records.read(partition), key) is None:
                return None
            again = await read_partition(self._rows, self._metadata_keys, partition)
            finding = disagreement(again.row, await records.read(partition), key)
        except RemoteFormatError as error:
            finding = Finding(Severity.WARNING, "unknown-format", str(error), key, error.remedy)
        except RemoteObjectTooLargeError as error:
            finding = Finding(Severity.WARNING, "damaged-log-start", str(error), key, error.remedy)
        except RemoteStorageError as error:
            await self._require_alone(error)
            finding = Finding(Severity.WARNING, "unreadable-log-start", str(error), key, error.remedy)
        return None if finding is None else AuditReport((finding,), partition)

    # ------------------------------------------------------------ one segment

    async def _checked(
        self, keys: ObjectKeyFactory, pairs: Sequence[SegmentPair], choice: DeepChoice
    ) -> list[AuditReport]:
        if not pairs:
            return []
        taken = [choice.takes(pair.row) for pair in pairs]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._judged(keys, pair, deep=deep)) for pair, deep in zip(pairs, taken, strict=True)
            ]
        judged = zip(pairs, taken, tasks, strict=True)
        if passed := [pair.row for pair, deep, task in judged if deep and pair.row and task.result() is None]:
            await choice.passed(passed)
        self._segments += len(pairs)
        self._on_progress(f"{self._segments} segments, now in {pairs[-1].place.partition}")
        return [report for task in tasks if (report := task.result()) is not None]

    async def _judged(self, keys: ObjectKeyFactory, pair: SegmentPair, *, deep: bool) -> AuditReport | None:
        """Return the faults of a segment; an object that the store refuses is a finding, and the walk continues."""
        try:
            return await self._lasting(keys, pair, deep=deep)
        except RemoteStorageError as error:
            await self._require_alone(error)
            where = str(pair.place.segment)
            finding = Finding(Severity.ERROR, "unreadable-segment", str(error), where, error.remedy)
            return AuditReport((finding,), pair.place.partition, pair.place, pair.row, pair.objects)

    async def _lasting(self, keys: ObjectKeyFactory, pair: SegmentPair, *, deep: bool) -> AuditReport | None:
        """Return the faults of a segment that stay the same while no daemon changes the segment."""
        if not await self._check.run(pair.row, pair.objects, pair.claim, deep=deep):
            return None
        place = pair.place
        before, claim = await self._row_at(keys, place)
        for _ in range(_READS):
            objects = await stored_objects(self._store, keys, place)
            findings = await self._check.run(before, objects, claim, deep=deep)
            if not findings:
                return None
            after, claim = await self._row_at(keys, place)
            if after == before:
                return AuditReport(findings, place.partition, place, after, objects)
            before = after
        return None

    async def _row_at(
        self, keys: ObjectKeyFactory, place: SegmentPlace
    ) -> tuple[RemoteLogSegmentMetadata | None, Claim | None]:
        """Return the row of the segment whose objects lie at ``place``, and the claim on the partition.

        Objects elsewhere under the id of a segment are none of its own: a writer of the bucket can choose any id.
        """
        row, partition_row = await read_segment(self._rows, self._metadata_keys, place.segment)
        if row is not None and not place.is_of(row, keys):
            row = None
        return row, partition_row.claim if partition_row else None

    async def _foreign(self, keys: ObjectKeyFactory, info: ObjectInfo) -> AuditReport | None:
        """Return a finding for an object that is no segment's, unless it is tierd's own, or young: a self-test's."""
        young = info.modified_ms is not None and self._age_s(info.modified_ms) < self._limits.grace_s
        if keys.belongs_to_tier(info.key) or young:
            return await self._unproven(keys, info)
        partition = keys.parse_log_start(info.key)
        if partition is not None:
            found = stray((await self._log_of(partition)).view.row, info.key)
            return None if found is None else AuditReport((found,), partition)
        try:
            await self._store.head(info.key)
        except RemoteResourceNotFoundError:
            return None
        what = f"an object of {info.size_bytes} bytes that is no segment's"
        remedy = "find out who wrote it; tierd leaves it alone"
        return AuditReport((Finding(Severity.WARNING, "foreign-object", what, info.key, remedy),))

    async def _unproven(self, keys: ObjectKeyFactory, info: ObjectInfo) -> AuditReport | None:
        """Return a finding for an object of the tier that no holder of the key ring is proven to have written."""
        request_id, is_catalogued = keys.parse_erasure_report(info.key), keys.catalogue.parse(info.key) is not None
        if not self._storage.asks_for_proof or (request_id is None and not is_catalogued):
            return None
        kind = CATALOGUE if request_id is None else ERASURE_REPORT
        written_anew = "" if request_id is None else "a running tierd writes those of its own requests anew; else "
        try:
            content = await read_whole(self._store, info.key, kind)
            if request_id is None:
                await asyncio.to_thread(self._storage.prove_catalogue_object, content, keys, key=info.key)
            else:
                await asyncio.to_thread(self._storage.prove_erasure_report, content, request_id, key=info.key)
        except RemoteUnauthenticatedError as error:
            remedy = f"{written_anew}{error.remedy}"
            return AuditReport((Finding(Severity.WARNING, UNAUTHENTICATED, str(error), info.key, remedy),))
        except RemoteIntegrityError as error:
            return AuditReport((Finding(Severity.WARNING, UNAUTHENTICATED, str(error), info.key, error.remedy),))
        except RemoteResourceNotFoundError:
            pass  # it went after it was listed
        except RemoteStorageError as error:
            await self._require_alone(error)
            return AuditReport((Finding(Severity.WARNING, UNAUTHENTICATED, str(error), info.key, error.remedy),))
        return None

    async def _require_alone(self, error: RemoteStorageError) -> None:
        """Raise ``error`` unless it concerns one object alone, so that the walk may go on.

        A refusal may be that of one object, which lies in an archive or under a key of another account: any writer of
        the bucket can bring that about. A refusal concerns every object where the tier's identity is refused too.
        """
        if error.retriable:
            raise error
        if isinstance(error, RemoteAccessError):
            with contextlib.suppress(RemoteIntegrityError):
                await read_tier_identity(self._store, key_prefix=self._keys.prefix, cluster_id=self._keys.cluster_id)

    # ------------------------------------------------------------ the tier itself

    async def _identity(self) -> tuple[Finding, ...]:
        key = self._keys.tier_identity
        try:
            owner = await read_tier_identity(
                self._store, key_prefix=self._keys.prefix, cluster_id=self._keys.cluster_id
            )
        except RemoteIntegrityError as error:
            return (Finding(Severity.ERROR, "damaged-tier-identity", str(error), key, error.remedy),)
        ours = await read_store_identity(self._rows, self._metadata_keys)
        if owner is None and await is_tier_known(self._rows, self._metadata_keys, key_prefix=self._keys.prefix):
            what = "it is gone: nothing says which metadata store this tier belongs to, and daemons refuse to copy"
            remedy = "make sure that this is the tier; tierd repair-tier then writes it again"
            return (Finding(Severity.ERROR, "missing-tier-identity", what, key, remedy),)
        if owner is not None and owner != ours:
            what = f"the tier belongs to metadata store {owner}, ours is {ours or 'empty'}"
            remedy = "restore that metadata store, or tierd rebuild-metadata into an empty one"
            return (Finding(Severity.ERROR, "foreign-tier", what, key, remedy),)
        return ()

    async def _is_foreign(self, keys: ObjectKeyFactory) -> bool:
        """Return whether another metadata store owns the prefix: its segments are not audited here."""
        try:
            owner = await read_tier_identity(self._store, key_prefix=keys.prefix, cluster_id=keys.cluster_id)
        except RemoteIntegrityError:
            return True
        return owner is not None and owner != await read_store_identity(self._rows, self._metadata_keys)

    async def _uploads(self, only: Collection[TopicIdPartition] | None) -> list[AuditReport]:
        """Return the unfinished uploads without a living writer. The store lists all uploads in one answer."""
        suspicious = []
        for upload, *_ in await self._storage.list_unfinished_uploads():
            place = place_of(self._keys.parse(upload.key))
            if only is not None and (place is None or place.partition not in only):
                continue
            age_s = self._age_s(upload.initiated_ms)
            if age_s >= self._limits.grace_s and not await self._is_under_way(place, age_s):
                suspicious.append((upload, place))
        if not suspicious:
            return []
        still = {upload for upload, *_ in await self._storage.list_unfinished_uploads()}
        return [self._unfinished_upload(upload, place) for upload, place in suspicious if upload in still]

    def _unfinished_upload(self, upload: UnfinishedUpload, place: SegmentPlace | None) -> AuditReport:
        what = f"begun {round(self._age_s(upload.initiated_ms))} s ago and never ended"
        remedy = "a tierd that leads the partition discards it after its start; so does tierd repair-tier"
        finding = Finding(Severity.WARNING, "unfinished-upload", what, upload.key, remedy)
        return AuditReport((finding,), place.partition if place else None, place, upload=upload)

    async def _is_under_way(self, place: SegmentPlace | None, age_s: float) -> bool:
        """Return True if the writer may live. No row tells that of an object that is not of a segment."""
        if place is None:
            return age_s < self._limits.attempt_timeout_s
        row, partition_row = await read_segment(self._rows, self._metadata_keys, place.segment)
        if row is None or row.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED or partition_row is None:
            return False
        return self._limits.is_living(row, partition_row.claim, now_ms=self._clock.now_ms())

    def _age_s(self, moment_ms: int) -> float:
        return (self._clock.now_ms() - moment_ms) / 1000
