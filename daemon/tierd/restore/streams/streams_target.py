"""StreamsTarget: the stores of one application as the target of a restore, several at a time."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tierd.clock import Clock
from tierd.errors import RefusedError, TierError
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import RestoreError, StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.streams.changelog_reading import changelog_reader
from tierd.restore.streams.state_directory import StreamsStateDirectory, streams_store_directory
from tierd.restore.streams.streams_restore import MEMORY_BYTES, RestoredStreamsStore, restore_streams_store
from tierd.restore.streams.streams_store import StreamsStore
from tierd.restore.streams.topology_file import StreamsTopology

_STORES_AT_A_TIME: Final = 4


class StreamsTarget:
    """State directory of an application, with the topology that says which store a changelog is of."""

    def __init__(self, topology: StreamsTopology, state_dir: Path) -> None:
        self._topology = topology
        self._state_dir = state_dir

    def store_of(self, partition: TopicPartition) -> StreamsStore:
        """Return the store of a changelog.

        Raises:
            RefusedError: the topology has none.
        """
        store = self._topology.store_of(partition.topic)
        if store is None:
            raise RefusedError(
                f"{partition}: the topology file has no store with the changelog {partition.topic}",
                remedy="add the store to the topology file, or leave the changelog out",
            )
        return store

    def directory(self, partition: TopicPartition) -> Path:
        """Return the place of the store of a changelog.

        Raises:
            RefusedError: the topology has none.
        """
        store = self.store_of(partition)
        return streams_store_directory(self._state_dir, self._topology.application_id, store, partition.partition)

    async def restore(
        self,
        source: ChangelogSource,
        partitions: Sequence[TopicPartition],
        *,
        clock: Clock,
        on_progress: Callable[[str], None],
    ) -> dict[TopicPartition, RestoredStreamsStore | RestoreError]:
        """Restore the store of each changelog; a failure ends one store. Repeated, it goes on.

        Args:
            source: has the changelogs.
            partitions: the changelogs.
            clock: time.
            on_progress: is called with lines about the progress.

        Raises:
            RefusedError: the application runs, its directory belongs to another user, or a changelog has no store.
            OSError: the directory of the application cannot be made.
        """
        stores = {partition: self.store_of(partition) for partition in partitions}
        done: dict[TopicPartition, RestoredStreamsStore | RestoreError] = {}
        record_count = 0
        places = asyncio.Semaphore(_STORES_AT_A_TIME)
        memory_bytes = MEMORY_BYTES // max(1, min(len(stores), _STORES_AT_A_TIME))
        application_id = self._topology.application_id
        state = await asyncio.to_thread(StreamsStateDirectory.open, self._state_dir, application_id)

        def report(count: int) -> None:
            nonlocal record_count
            record_count += count
            on_progress(f"{len(done)} of {len(stores)} stores, {record_count} records")

        async def restore_one(partition: TopicPartition, store: StreamsStore) -> None:
            async with places:
                try:
                    done[partition] = await restore_streams_store(
                        store,
                        partition.partition,
                        state=state,
                        identity=await source.identity(partition),
                        read=changelog_reader(source, partition, report=report),
                        clock=clock,
                        memory_bytes=memory_bytes,
                    )
                except RestoreError as error:
                    done[partition] = error
                except TierError as error:
                    done[partition] = StoreFailedError(store.name, str(error), remedy=error.remedy)

        try:
            async with asyncio.TaskGroup() as tasks:
                for partition, store in stores.items():
                    tasks.create_task(restore_one(partition, store), name=f"restore of {partition}")
        finally:
            await asyncio.to_thread(state.close)
        return done
