"""The sweep: removes copies without an end, deletions that stopped half-way, and dead uploads (remote-tiering 12.8)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import FencedError, RemoteObjectRetainedError, TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.remote import SegmentStorage, UnfinishedUpload
from tierd.tiering.copy_plan import dangling_segments
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import RETAINED_RETRY_S, SegmentDeletion
from tierd.tiering.removing.last_copy import KEPT, KEPT_REMEDY
from tierd.tiering.removing.ledger import DeleteReason

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Settings of the sweeps.

    Attributes:
        grace_s: age at which a copy without an end counts as dangling, and an upload as abandoned.
        limit: rows that one run of one partition removes at most.
        retry_s: the wait after a removal or a listing that failed.
    """

    grace_s: float
    limit: int
    retry_s: float


class DanglingSweep:
    """Remover of what interrupted copies and deletions of one partition left. It works from memory: no listing."""

    def __init__(
        self,
        partition: TopicIdPartition,
        *,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        recorder: TieringRecorder,
        clock: Clock,
        settings: SweepSettings,
    ) -> None:
        """Remove nothing yet; ``being_copied`` has the ids that this process is uploading now, live."""
        self._partition = partition
        self._metadata = metadata
        self._deletion = deletion
        self._being_copied = being_copied
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        # Deleted copies of other sessions, and when to delete their objects once more: an upload of a fenced
        # process may have ended after our delete.
        self._again: list[tuple[float, RemoteLogSegmentMetadata]] = []
        self._kept: dict[UUID, float] = {}  # last copies, and when to look at them again

    async def run_once(self) -> float | None:
        """Sweep what is due, oldest first; return seconds until more is due, None when nothing is left.

        A row that cannot be removed now does not stop the others, nor the copying.

        Raises:
            FencedError: the partition is not ours any more.
        """
        dangling = dangling_segments(
            self._candidates(),
            being_copied=self._being_copied,
            now_ms=self._clock.now_ms(),
            grace_ms=round(self._settings.grace_s * 1000),
            limit=self._settings.limit,
        )
        failed = False
        for metadata in dangling.due:
            failed = not await self._sweep(metadata) or failed
        failed = not await self._delete_again() or failed
        if not dangling.due and not failed:
            self._recorder.task_succeeded("sweep")
        return self._next_delay_s(dangling.next_due_ms, failed=failed)

    def _candidates(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the rows that may go: retained objects and last copies must not use up the limit of a run."""
        rows, now_s = self._metadata.view(self._partition).list(), self._clock.monotonic_s()
        if self._deletion.retained_of(self._partition):
            rows = tuple(row for row in rows if not self._deletion.retained_for_s(row.segment))
        return tuple(row for row in rows if self._kept.get(row.segment.id, now_s) <= now_s) if self._kept else rows

    async def take(self, metadata: RemoteLogSegmentMetadata, *, reason: str, detail: str) -> None:
        """Remove a segment that the caller found. The caller has the segment exclusively (``SegmentDeletion``).

        Raises:
            TierError: the removal stopped half-way; a later run repeats it.
        """
        await self._deletion.delete(metadata, reason=reason, detail=detail)
        self._recorder.dangling_swept(self._partition.topic)
        log.info("dangling_segment_swept", segment=str(metadata.segment), was=metadata.state.name)
        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            self._again.append((self._clock.monotonic_s() + self._settings.grace_s, metadata))

    async def _sweep(self, metadata: RemoteLogSegmentMetadata) -> bool:
        with self._deletion.exclusively(metadata) as alone:
            if not alone:
                return True  # another task of this process deletes it
            try:
                if await self._is_last_copy(metadata):
                    return True
                await self.take(metadata, reason=DeleteReason.DANGLING, detail=f"left {metadata.state.name}")
            except FencedError:
                raise
            except RemoteObjectRetainedError:
                return True  # noted; tried again much later
            except TierError as error:
                log.warning("sweep_failed", segment=str(metadata.segment), problem=str(error), remedy=error.remedy)
                return False
        return True

    async def _is_last_copy(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether a copy without an end is kept, because its records may be nowhere else; looked at again."""
        if not await self._deletion.is_last_copy(metadata):
            self._kept.pop(metadata.segment.id, None)
            return False
        if metadata.segment.id not in self._kept:
            log.warning("last_copy_kept", segment=str(metadata.segment), problem=KEPT, remedy=KEPT_REMEDY)
        self._kept[metadata.segment.id] = self._clock.monotonic_s() + RETAINED_RETRY_S
        return True

    async def _delete_again(self) -> bool:
        due = [entry for entry in self._again if entry[0] <= self._clock.monotonic_s()]
        for entry in due:
            try:
                await self._deletion.delete_objects(entry[1])
            except RemoteObjectRetainedError as error:
                log.warning("segment_retained", segment=str(entry[1].segment), problem=str(error))
            except TierError as error:
                log.warning("sweep_failed", segment=str(entry[1].segment), problem=str(error), remedy=error.remedy)
                return False
            self._again = [other for other in self._again if other is not entry]
        return True

    def _next_delay_s(self, next_due_ms: int | None, *, failed: bool) -> float | None:
        delays = [due_s - self._clock.monotonic_s() for due_s, _ in self._again]
        if next_due_ms is not None:
            delays.append((next_due_ms - self._clock.now_ms()) / 1000)
        if self._deletion.retained_of(self._partition) or self._kept:
            delays.append(RETAINED_RETRY_S)
        if failed:
            delays = [self._settings.retry_s]
        return max(0.0, min(delays)) if delays else None


def is_abandoned(
    *,
    segment_id: UUID | None,
    rows: Mapping[UUID, RemoteLogSegmentMetadata],
    being_copied: Collection[UUID],
    is_ours: bool,
    age_ms: int,
    grace_ms: int,
) -> bool:
    """Return whether no living process can finish an unfinished upload.

    The row of the segment names the writer, and the claim on the partition says which writer may finish. In a partition
    of this broker (``is_ours``: claimed and loaded), every upload that this process does not write was begun under a
    claim that is fenced by now. An upload without a row is of a segment whose deletion was finished, or of another
    metadata store that reads the same prefix: then the age decides too. In a partition that another broker leads, a
    living copy may write the upload at any age: the leader there decides. An upload whose name is not one of tierd's is
    never abandoned.
    """
    if segment_id is None or segment_id in being_copied or not is_ours:
        return False
    return segment_id in rows or age_ms >= grace_ms


class UploadSweep:
    """Remover of unfinished uploads that dead processes left, or that a deleted partition has."""

    def __init__(
        self,
        *,
        storage: SegmentStorage,
        metadata: RemoteLogMetadataManager,
        being_copied: Collection[UUID],
        recorder: TieringRecorder,
        clock: Clock,
        settings: SweepSettings,
    ) -> None:
        self._storage = storage
        self._metadata = metadata
        self._being_copied = being_copied
        self._recorder = recorder
        self._clock = clock
        self._settings = settings

    async def run_until_judged(self, led: Callable[[], Collection[TopicIdPartition]]) -> None:
        """Run until no unfinished upload is too young to judge; ``led`` returns the partitions that are loaded.

        A listing that fails is logged and repeated.
        """
        while True:
            try:
                if not await self.run_once(led()):
                    return
            except TierError as error:
                log.warning("upload_sweep_failed", problem=str(error), remedy=error.remedy)
                await self._clock.sleep(self._settings.retry_s)
            else:
                await self._clock.sleep(self._settings.grace_s)

    async def run_once(self, led: Collection[TopicIdPartition]) -> int:
        """List unfinished uploads, discard the abandoned ones, and return how many were too young to judge.

        Args:
            led: the partitions that this broker leads; those whose metadata is not loaded count as another broker's.

        Raises:
            RemoteStorageError: the store cannot be listed.
        """
        aborted, young = 0, 0
        now_ms, grace_ms = self._clock.now_ms(), round(self._settings.grace_s * 1000)
        uploads = await self._storage.list_unfinished_uploads()
        # The rows are read after the uploads were listed: a copy that began in between has its row by then.
        ours = [partition for partition in led if self._metadata.is_ready(partition)]
        rows = {m.segment.id: m for partition in ours for m in self._metadata.view(partition).list()}
        places = {(uuid_to_text(partition.topic_id), partition.partition) for partition in ours}
        for upload, topic_id, segment_id, number in uploads:
            age_ms = now_ms - upload.initiated_ms
            is_ours = (topic_id, number) in places
            abandoned = is_abandoned(
                segment_id=segment_id,
                rows=rows,
                being_copied=self._being_copied,
                is_ours=is_ours,
                age_ms=age_ms,
                grace_ms=grace_ms,
            )
            is_old_log_start = is_ours and segment_id is None and age_ms >= grace_ms  # a young one is being written
            if abandoned or is_old_log_start:
                aborted += await self._abort(upload)
            elif is_ours and segment_id not in self._being_copied and age_ms < grace_ms:
                young += 1
        self._recorder.uploads_aborted(aborted)
        return young

    async def discard_of(self, partition: TopicIdPartition) -> None:
        """Discard every unfinished upload of a deleted partition that this broker has claimed.

        An upload that the store does not discard is logged; the deletion does not wait for it.
        """
        place, aborted = (uuid_to_text(partition.topic_id), partition.partition), 0
        try:
            for upload, topic_id, segment_id, number in await self._storage.list_unfinished_uploads():
                if (topic_id, number) == place and segment_id not in self._being_copied:
                    aborted += await self._abort(upload)
        except TierError as error:
            log.warning("upload_sweep_failed", partition=str(partition), problem=str(error), remedy=error.remedy)
        self._recorder.uploads_aborted(aborted)

    async def _abort(self, upload: UnfinishedUpload) -> bool:
        try:
            await self._storage.abort_upload(upload)
        except TierError as error:
            log.warning("upload_abort_failed", key=upload.key, problem=str(error), remedy=error.remedy)
            return False
        log.info("unfinished_upload_aborted", key=upload.key, upload_id=upload.upload_id)
        return True
