"""TierViews: the metadata of partitions for readers, live where this broker leads, else as the store had it lately."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import MetadataError, RemoteResourceNotFoundError, RemoteStorageNotReadyError
from tierd.metadata import FollowedPartitions, KeyValueStore, MetadataKeyFactory, PartitionView
from tierd.model import TopicIdPartition

log = structlog.get_logger()

_FRESH_S: Final = 2.0  # a view is read again after that; a reader who meets a hole asks sooner
_POLL_S: Final = 2.0
_UNUSED_S: Final = 600.0
_ROWS_PER_CALL: Final = 512

LedView = Callable[[TopicIdPartition], PartitionView]
"""``RemoteLogMetadataManager.view``: raises RemoteResourceNotFoundError for a partition that is not led."""


def leads_none(partition: TopicIdPartition) -> PartitionView:
    """Refuse every partition, as where no daemon runs.

    Raises:
        RemoteResourceNotFoundError: always.
    """
    raise RemoteResourceNotFoundError(f"{partition}: this process leads no partition")


@dataclass(slots=True)
class _Seen:
    """The last view of a partition that this broker does not lead, or whose live view is not ready."""

    view: PartitionView
    read_s: float
    used_s: float


class TierViews:
    """Views of any number of partitions. Readers in quick succession cost one read of the store."""

    def __init__(
        self,
        store: KeyValueStore,
        keys: MetadataKeyFactory,
        *,
        led: LedView,
        followed: FollowedPartitions,
        clock: Clock,
    ) -> None:
        """Read nothing yet.

        Args:
            store: only read.
            keys: of the cluster.
            led: returns the live view of a partition that this broker leads.
            followed: reads the others; it belongs to this object.
            clock: for the age of views.
        """
        self._store = store
        self._keys = keys
        self._led = led
        self._followed = followed
        self._clock = clock
        self._seen: dict[TopicIdPartition, _Seen] = {}
        self._listeners: dict[TopicIdPartition, dict[object, Callable[[], None]]] = {}
        self._rows: dict[TopicIdPartition, bytes | None] = {}

    async def current(self, partition: TopicIdPartition, *, is_doubted: bool = False) -> PartitionView:
        """Return the view; the same object while nothing has changed. With ``is_doubted`` it is read after the call.

        While the store does not answer, the last view counts, unless it is doubted.

        Raises:
            RemoteResourceNotFoundError: the partition was deleted.
            RemoteStorageNotReadyError: the metadata is not loaded, or the store does not answer.
            MetadataDecodeError: a row that cannot be understood.
        """
        now_s = self._clock.monotonic_s()
        try:
            view = self._led(partition)
        except RemoteResourceNotFoundError:
            pass
        except RemoteStorageNotReadyError:
            if is_doubted or partition not in self._seen:
                raise
            return self._seen[partition].view
        else:
            self._note(view, now_s)
            return view
        seen = self._seen.get(partition)
        if seen is not None:
            seen.used_s = now_s
            if not is_doubted and now_s - seen.read_s < _FRESH_S:
                return seen.view
        return await self._read(partition, is_doubted=is_doubted)

    def listen(self, partition: TopicIdPartition, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` soon after the store has a change of the partition, until the returned function is called.

        For a partition without a replica here: of others, the log tells sooner.
        """
        listeners, ticket = self._listeners.setdefault(partition, {}), object()
        listeners[ticket] = on_change

        def leave() -> None:
            listeners.pop(ticket, None)

        return leave

    async def watch(self) -> None:
        """Compare the rows of the partitions that have listeners at intervals, until cancelled."""
        while True:
            await self._clock.sleep(_POLL_S)
            self._forget_unused()
            partitions = [partition for partition, listeners in self._listeners.items() if listeners]
            for at in range(0, len(partitions), _ROWS_PER_CALL):
                try:
                    await self._compare(partitions[at : at + _ROWS_PER_CALL])
                except MetadataError as error:
                    log.warning("tier_not_watched", problem=str(error), remedy=error.remedy)

    async def _compare(self, partitions: Iterable[TopicIdPartition]) -> None:
        keys = {self._keys.row(partition): partition for partition in partitions}
        rows = await self._store.get_many(keys)
        for key, partition in keys.items():
            row, known = rows.get(key), self._rows.get(partition)
            self._rows[partition] = row
            if row == known:
                continue
            if (seen := self._seen.get(partition)) is not None:
                seen.read_s = float("-inf")
            for on_change in tuple(self._listeners.get(partition, {}).values()):
                on_change()

    async def _read(self, partition: TopicIdPartition, *, is_doubted: bool) -> PartitionView:
        self._followed.follow(partition)
        begun_s = self._clock.monotonic_s()
        try:
            view = await self._followed.read(partition)
        except RemoteStorageNotReadyError:
            if is_doubted or partition not in self._seen:
                raise
            return self._seen[partition].view
        except RemoteResourceNotFoundError:
            self._seen.pop(partition, None)
            raise
        self._note(view, begun_s)
        return self._seen[partition].view

    def _note(self, view: PartitionView, now_s: float) -> None:
        seen = self._seen.get(view.partition)
        if seen is None:
            self._seen[view.partition] = _Seen(view, now_s, now_s)
            return
        seen.read_s = seen.used_s = now_s
        if seen.view.row != view.row:  # no two states of a partition share a row
            seen.view = view

    def _forget_unused(self) -> None:
        now_s = self._clock.monotonic_s()
        for partition in [each for each, seen in self._seen.items() if now_s - seen.used_s >= _UNUSED_S]:
            del self._seen[partition]
            self._followed.stop(partition)
        for partition in [each for each, listeners in self._listeners.items() if not listeners]:
            del self._listeners[partition]
            self._rows.pop(partition, None)
