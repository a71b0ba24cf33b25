"""LogStartKeeper: the log start of every led partition in the bucket too, so that a rebuild knows it (decision 24).

::

    raised:   row ──► record in doubt, which proves the leadership ──► object ──► row: recorded
    lowered:  record in doubt ──► object ──► row, with the segment that is taken back

The row comes first when the log start rises, for only the row is fenced. A crash before the object leaves a bucket
whose log start is too low, which hides nothing. For the same reason the object comes first when the log start is
lowered. The row says after every crash that the object is to be read again.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import (
    RefusedError,
    RemoteConflictError,
    RemoteFormatError,
    RemoteObjectRetainedError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.metadata import RECORD_IN_DOUBT, RemoteLogMetadataManager
from tierd.model import TopicIdPartition
from tierd.remote import LogStartRecord, LogStartStorage, StoredLogStart

log = structlog.get_logger()

INTERVAL_S: Final = 300.0
"""At most one put per partition in this time."""
REFUSED_RETRY_S: Final = 3600.0
_ATTEMPTS: Final = 3


def is_of_later_leader(stored: StoredLogStart | None, wanted: LogStartRecord) -> bool:
    """Return whether the bucket has the record of a later leader: the writer of ``wanted`` has lost the partition."""
    return stored is not None and stored.record is not None and stored.record.leader_epoch > wanted.leader_epoch


def must_write(stored: StoredLogStart | None, wanted: LogStartRecord) -> bool:
    """Return whether ``wanted`` takes the place of what the bucket has.

    A record of the same or an earlier leader, or a damaged one, says nothing that the writer's metadata does not know
    better. No record stands for a log start of 0.
    """
    if is_of_later_leader(stored, wanted):
        return False
    if stored is None:
        return wanted.log_start_offset > 0
    return stored.record is None or stored.record.log_start_offset != wanted.log_start_offset


class LogStartKeeper:
    """Writer of the log start records of led partitions. Interrupted anywhere, a later call completes the write."""

    def __init__(
        self, *, metadata: RemoteLogMetadataManager, storage: LogStartStorage, clock: Clock, broker_id: int
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._clock = clock
        self._broker_id = broker_id
        self._next_s: dict[TopicIdPartition, float] = {}  # monotonic: no put before
        self._busy: set[TopicIdPartition] = set()

    async def keep(self, partition: TopicIdPartition) -> float | None:
        """Bring the record of a led and loaded partition in line with its row.

        Nothing is asked of the store while the row says that both are equal, nor of a partition that never had a
        segment in the tier.

        Returns:
            Seconds until the record may be written, None when nothing is left to do.

        Raises:
            FencedError: another leader owns the partition; its record was not changed.
            RemoteStorageError: the store failed; call again.
            MetadataError: the metadata store failed; call again.
        """
        view = self._metadata.view(partition)
        row = view.row
        has_had_segments = bool(view.segments or view.tombstones or view.epochs)
        if row is None or row.is_log_start_recorded or row.deletion is not None:
            return None
        if not has_had_segments and row.recorded_log_start is None:
            return None
        wait_s = self._next_s.get(partition, 0.0) - self._clock.monotonic_s()
        if wait_s > 0 or partition in self._busy:
            return max(wait_s, 1.0)
        self._next_s[partition] = self._clock.monotonic_s() + INTERVAL_S
        self._busy.add(partition)
        try:
            await self._record(partition, row.log_start_offset or 0)
        except (RemoteObjectRetainedError, RemoteFormatError, RemoteObjectTooLargeError) as error:
            self._next_s[partition] = self._clock.monotonic_s() + REFUSED_RETRY_S
            log.warning("log_start_not_recorded", partition=str(partition), problem=str(error), remedy=error.remedy)
            return REFUSED_RETRY_S
        except BaseException:
            self._next_s.pop(partition, None)  # the wait is for puts that succeed
            raise
        finally:
            self._busy.discard(partition)
        now = self._metadata.view(partition).row
        return None if now is None or now.is_log_start_recorded else INTERVAL_S

    @contextlib.asynccontextmanager
    async def lowered(self, partition: TopicIdPartition, offset: int) -> AsyncIterator[None]:
        """Lower the record to ``offset`` if it lies above, and keep it there while the caller lowers the row.

        Raises:
            RefusedError: the record is written at this moment.
            RemoteObjectRetainedError: the store keeps the record as it is.
            FencedError, RemoteStorageError, MetadataError: as ``keep``.
        """
        row = self._metadata.view(partition).row
        if row is None or row.recorded_log_start is None or 0 <= row.recorded_log_start <= offset:
            yield
            return
        if partition in self._busy:
            raise RefusedError(f"{partition}: its log start is written at this moment", remedy="repeat the command")
        self._busy.add(partition)
        try:
            await self._write(partition, offset)
            yield
        finally:
            self._busy.discard(partition)

    async def remove(self, partition: TopicIdPartition) -> None:
        """Remove the record of a partition that is deleted, and forget the partition.

        Raises:
            RemoteStorageError: the store failed, or keeps the record.
        """
        await self._storage.remove(partition)
        self._next_s.pop(partition, None)

    async def _record(self, partition: TopicIdPartition, offset: int) -> None:
        """Write the record, and note that it is written."""
        if await self._write(partition, offset):
            await self._metadata.note_recorded_log_start(partition, offset)

    async def _write(self, partition: TopicIdPartition, offset: int) -> bool:
        """Write the record unless it has ``offset`` already; return False where the record of a later leader stays."""
        for _ in range(_ATTEMPTS):
            stored = await self._storage.read(partition)
            await self._metadata.note_recorded_log_start(partition, RECORD_IN_DOUBT)
            claim = self._metadata.view(partition).claim
            assert claim is not None, "its row was just written"
            wanted = LogStartRecord(
                log_start_offset=offset,
                leader_epoch=claim.leader_epoch,
                broker_id=self._broker_id,
                written_ms=self._clock.now_ms(),
            )
            if is_of_later_leader(stored, wanted):
                log.warning(
                    "log_start_recorded_by_later_leader",
                    partition=str(partition),
                    leader_epoch=claim.leader_epoch,
                    remedy="nothing to do if leadership moves; otherwise the metadata store is an older one",
                )
                return False
            if not must_write(stored, wanted):
                return True
            try:
                await self._storage.write(partition, wanted, previous=stored)
            except (RemoteConflictError, RemoteResourceNotFoundError):
                continue  # another process wrote, or an answer was lost: the row says who may write
            log.info("log_start_recorded", partition=str(partition), log_start_offset=offset)
            return True
        raise RetriableRemoteStorageError(
            f"{partition}: the log start record changed {_ATTEMPTS} times while it was written",
            remedy="look for a second tierd that writes to the same tier",
        )
