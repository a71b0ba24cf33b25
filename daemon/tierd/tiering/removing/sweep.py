"""The sweep: copies that nobody will finish, deletions that stopped half-way, uploads of dead processes (12.8)."""

from collections.abc import Collection, Mapping
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import FencedError, TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.remote import SegmentStorage, UnfinishedUpload
from tierd.tiering.plan import dangling_segments
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import SegmentDeletion

log = structlog.get_logger()


class DanglingSweep:
    """Removes what interrupted copies and deletions of one partition left behind. Works from memory: no listing."""

    def __init__(
        self,
        partition: TopicIdPartition,
        *,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        recorder: TieringRecorder,
        clock: Clock,
        grace_s: float,
        limit: int,
        retry_s: float,
    ) -> None:
        """``being_copied``: ids that this process is uploading now, live; ``retry_s``: wait after a failed delete."""
        self._partition = partition
        self._metadata = metadata
        self._deletion = deletion
        self._being_copied = being_copied
        self._recorder = recorder
        self._clock = clock
        self._grace_s = grace_s
        self._limit = limit
        self._retry_s = retry_s
        # Deleted copies of other sessions, and when to delete their objects once more: an upload of a fenced
        # process may have ended after our delete.
        self._again: list[tuple[float, RemoteLogSegmentMetadata]] = []

    async def run_once(self) -> float | None:
        """Sweep what is due, oldest first; return seconds until more is due, None when nothing is left.

        A row that cannot be removed now does not stop the others, nor the copying.

        Raises:
            FencedError: the partition is not ours any more.
        """
        dangling = dangling_segments(
            self._metadata.view(self._partition).list(),
            being_copied=self._being_copied,
            now_ms=self._clock.now_ms(),
            grace_ms=round(self._grace_s * 1000),
            limit=self._limit,
        )
        failed = False
        for metadata in dangling.due:
            failed = not await self._sweep(metadata) or failed
        failed = not await self._delete_again() or failed
        if not dangling.due and not failed:
            self._recorder.task_succeeded("sweep")
        return self._next_delay_s(dangling.next_due_ms, failed=failed)

    async def _sweep(self, metadata: RemoteLogSegmentMetadata) -> bool:
        try:
            await self._deletion.delete(metadata)
        except FencedError:
            raise
        except TierError as error:
            log.warning("sweep_failed", segment=str(metadata.segment), problem=str(error), remedy=error.remedy)
            return False
        self._recorder.dangling_swept(self._partition.topic)
        log.info("dangling_segment_swept", segment=str(metadata.segment), was=metadata.state.name)
        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            self._again.append((self._clock.monotonic_s() + self._grace_s, metadata))
        return True

    async def _delete_again(self) -> bool:
        due = [entry for entry in self._again if entry[0] <= self._clock.monotonic_s()]
        for entry in due:
            try:
                await self._deletion.delete_objects(entry[1])
            except TierError as error:
                log.warning("sweep_failed", segment=str(entry[1].segment), problem=str(error), remedy=error.remedy)
                return False
            self._again.remove(entry)
        return True

    def _next_delay_s(self, next_due_ms: int | None, *, failed: bool) -> float | None:
        delays = [due_s - self._clock.monotonic_s() for due_s, _ in self._again]
        if next_due_ms is not None:
            delays.append((next_due_ms - self._clock.now_ms()) / 1000)
        if failed:
            delays = [self._retry_s]
        return max(0.0, min(delays)) if delays else None


def is_abandoned(
    *,
    topic_id: str | None,
    segment_id: UUID | None,
    rows: Mapping[UUID, RemoteLogSegmentMetadata],
    being_copied: Collection[UUID],
    led_topic_ids: Collection[str],
    age_ms: int,
    grace_ms: int,
) -> bool:
    """Whether an unfinished upload belongs to nobody who could still finish it.

    A row of ours that this process is not copying was begun by a session that is fenced by now. Without a row its
    deletion was finished already, or the partition is led elsewhere: then only age tells. Uploads of topics that are
    not here, and names that are not tierd's, are not ours to judge.
    """
    if segment_id is None or segment_id in being_copied:
        return False
    if segment_id in rows:
        return True
    return topic_id in led_topic_ids and age_ms >= grace_ms


class UploadSweep:
    """Discards unfinished uploads that dead processes left; lists the store once, after start."""

    def __init__(
        self,
        *,
        storage: SegmentStorage,
        metadata: RemoteLogMetadataManager,
        being_copied: Collection[UUID],
        recorder: TieringRecorder,
        clock: Clock,
        grace_s: float,
    ) -> None:
        self._storage = storage
        self._metadata = metadata
        self._being_copied = being_copied
        self._recorder = recorder
        self._clock = clock
        self._grace_s = grace_s

    async def run_once(self, led: Collection[TopicIdPartition]) -> int:
        """List unfinished uploads, discard the abandoned ones; return how many were too young to judge.

        Args:
            led: the partitions whose metadata is claimed and loaded.

        Raises:
            RemoteStorageError: the store cannot be listed.
        """
        aborted, young = 0, 0
        now_ms, grace_ms = self._clock.now_ms(), round(self._grace_s * 1000)
        uploads = await self._storage.list_unfinished_uploads()
        rows = {m.segment.id: m for p in led if self._metadata.is_ready(p) for m in self._metadata.view(p).list()}
        topics = {uuid_to_text(partition.topic_id) for partition in led}
        for upload, topic_id, segment_id in uploads:
            age_ms = now_ms - upload.initiated_ms
            abandoned = is_abandoned(
                topic_id=topic_id,
                segment_id=segment_id,
                rows=rows,
                being_copied=self._being_copied,
                led_topic_ids=topics,
                age_ms=age_ms,
                grace_ms=grace_ms,
            )
            if abandoned:
                aborted += await self._abort(upload)
            elif topic_id in topics and segment_id not in self._being_copied and age_ms < grace_ms:
                young += 1
        self._recorder.uploads_aborted(aborted)
        return young

    async def _abort(self, upload: UnfinishedUpload) -> bool:
        try:
            await self._storage.abort_upload(upload)
        except TierError as error:
            log.warning("upload_abort_failed", key=upload.key, problem=str(error), remedy=error.remedy)
            return False
        log.info("unfinished_upload_aborted", key=upload.key, upload_id=upload.upload_id)
        return True
