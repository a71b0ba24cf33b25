"""FollowedPartitions: metadata for followers, read from the store each time it is asked for (remote-tiering 7.8).

The end of the tier comes from the partition's row alone. A view of all rows is kept while one cheap read shows that
the partition's row is still the one that the view came with. A view is not kept for a fixed time: the follower task
deletes local data because of these answers.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from tierd.errors import BackendUnavailableError, RemoteResourceNotFoundError, RemoteStorageNotReadyError
from tierd.metadata.kv import KeyValueStore
from tierd.metadata.rows import CopiedEpochs, MetadataKeyFactory, PartitionRow, TierEpochs
from tierd.metadata.stored.stored_partitions import read_partition, read_row
from tierd.metadata.views import PartitionView
from tierd.model import TopicIdPartition


class _Followed:
    """One partition: its last snapshot as ``view``; ``is_ready`` while the store has answered the last read."""

    def __init__(self) -> None:
        self.view: PartitionView | None = None
        self.is_ready = False
        self.lock = asyncio.Lock()  # held across the read on purpose: one load serves every caller that waits


class FollowedPartitions:
    """The partitions that this broker follows, over a store whose calls end in time.

    Args:
        store: answers in time.
        keys: of the cluster.
        load_concurrency: whole partitions read at once.
        strict_kafka_compat: as in ``PartitionView``.
    """

    def __init__(
        self, store: KeyValueStore, keys: MetadataKeyFactory, *, load_concurrency: int, strict_kafka_compat: bool
    ) -> None:
        self._store = store
        self._keys = keys
        self._strict_kafka_compat = strict_kafka_compat
        self._load_slots = asyncio.Semaphore(load_concurrency)
        self._followed: dict[TopicIdPartition, _Followed] = {}
        self.reads = 0
        """Reads of partitions."""
        self.loads = 0
        """Reads for which all rows of a partition had to be loaded, because the partition row was not enough."""

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter(self._followed)

    def views(self) -> Iterator[PartitionView]:
        """Yield the views that are kept now."""
        return (followed.view for followed in self._followed.values() if followed.view is not None)

    def follow(self, partition: TopicIdPartition) -> None:
        """Announce the partition; a repeated call changes nothing."""
        self._followed.setdefault(partition, _Followed())

    def stop(self, partition: TopicIdPartition) -> None:
        """Forget the partition."""
        self._followed.pop(partition, None)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return True if the partition is announced and the store answered its last read."""
        followed = self._followed.get(partition)
        return followed is not None and followed.is_ready

    async def read_epochs(self, partition: TopicIdPartition) -> TierEpochs:
        """Return how far the newest epochs are in the tier, as the partition's row has it now.

        The call reads one row, however many segments the partition has. A row of a rebuild or an earlier tierd lacks
        the newest epochs; then the whole partition is read, once after each change, as by ``read``.

        Raises:
            As ``read``.
        """
        async with self._asking(partition) as followed:
            row = await read_row(self._store, self._keys, partition)
            newest = None if row is None else row.known_epochs
            if row is None or newest is None:
                followed.view = view = await self._refreshed(partition, followed.view, row)
            else:
                followed.view, view = None, PartitionView(partition, row)
        view.require_not_deleted()
        if row is None or newest is None:
            return view
        epochs = {each.epoch: each for each in newest.epochs}
        return CopiedEpochs(epochs, newest.is_complete, row.log_start_offset, self._strict_kafka_compat)

    async def read(self, partition: TopicIdPartition) -> PartitionView:
        """Return the partition as the store has it now: all from one snapshot, empty when it has nothing.

        Raises:
            RemoteResourceNotFoundError: the partition was not announced, or was deleted.
            RemoteStorageNotReadyError: the store does not answer.
            MetadataDecodeError: a row that cannot be understood.
        """
        async with self._asking(partition) as followed:
            row = await read_row(self._store, self._keys, partition)
            followed.view = view = await self._refreshed(partition, followed.view, row)
        view.require_not_deleted()
        return view

    @asynccontextmanager
    async def _asking(self, partition: TopicIdPartition) -> AsyncIterator[_Followed]:
        """Hold the partition's lock while the store is asked, and note whether the store answered."""
        followed = self._followed.get(partition)
        if followed is None:
            raise RemoteResourceNotFoundError(f"{partition}: this broker neither leads nor follows it")
        self.reads += 1
        async with followed.lock:
            followed.is_ready = False  # until this read has succeeded
            try:
                yield followed
            except BackendUnavailableError as error:
                raise RemoteStorageNotReadyError(
                    f"{partition}: its metadata cannot be read: {error}", remedy=error.remedy
                ) from error
            followed.is_ready = True

    async def _refreshed(
        self, partition: TopicIdPartition, known: PartitionView | None, row: PartitionRow | None
    ) -> PartitionView:
        if row is None:
            return PartitionView(partition, strict_kafka_compat=self._strict_kafka_compat)
        if known is not None and known.row == row:
            return known
        async with self._load_slots:
            self.loads += 1
            return await read_partition(
                self._store, self._keys, partition, strict_kafka_compat=self._strict_kafka_compat
            )
