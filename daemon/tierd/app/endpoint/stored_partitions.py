"""StoredPartitions: the partitions that the metadata store knows, with their leaders, read at intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import structlog

from tierd.app.endpoint.served_topology import KnownPartition, ambiguous_topics
from tierd.app.endpoint.tier_views import TierViews
from tierd.clock import Clock
from tierd.errors import MetadataError, RemoteStorageNotReadyError, TierError
from tierd.metadata import KeyValueStore, MetadataKeyFactory, copied_last_ms, list_partitions, read_claims
from tierd.model import TopicIdPartition

log = structlog.get_logger()

_INTERVAL_S: Final = 10.0
_PARTITIONS_PER_S: Final = 500  # 10,000 partitions every 20 s, in a tenth of a second


class StoredPartitions:
    """Partitions of the store. While it does not answer, the last list counts."""

    def __init__(
        self,
        store: KeyValueStore,
        keys: MetadataKeyFactory,
        views: TierViews,
        *,
        wants: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        """Read nothing yet; ``wants`` tells whether a topic is served now."""
        self._store = store
        self._keys = keys
        self._views = views
        self._wants = wants
        self._clock = clock
        self._failed = False
        self.partitions: Sequence[KnownPartition] = ()
        """Wanted partitions that are not deleted, each with the broker that claimed it last."""
        self.newest: Mapping[str, UUID] = {}
        """By name the incarnation that was copied last, of topics with several."""

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Read until cancelled; call ``on_change`` whenever the list differs from the one before."""
        while True:
            await self._clock.sleep(max(_INTERVAL_S, len(self.partitions) / _PARTITIONS_PER_S))
            if await self.refresh():
                on_change()

    async def refresh(self) -> bool:
        """Read once; return True if the list differs from the one before. Without an answer nothing changes."""
        try:
            listed = [each for each in await list_partitions(self._store, self._keys) if self._wants(each.topic)]
            claims = await read_claims(self._store, self._keys, listed)
            found = tuple(
                KnownPartition(partition, claims[partition].leader_epoch, claims[partition].broker_id)
                for partition in listed
                if partition in claims
            )
            newest = await self._newest(found)
        except (MetadataError, RemoteStorageNotReadyError) as error:
            if not self._failed:
                log.warning("endpoint_partitions_unknown", problem=str(error), remedy=error.remedy)
            self._failed = True
            return False
        self._failed = False
        if (found, newest) == (self.partitions, self.newest):
            return False
        self.partitions, self.newest = found, newest
        return True

    async def _newest(self, found: Sequence[KnownPartition]) -> Mapping[str, UUID]:
        newest: dict[str, UUID] = {}
        for name, ids in ambiguous_topics(found).items():
            times = dict.fromkeys(ids, (False, -1))
            for each in found:
                if each.partition.topic == name:
                    topic_id = each.partition.topic_id
                    times[topic_id] = max(times[topic_id], await self._copied_last(each.partition))
            newest[name] = max(ids, key=lambda topic_id: (times[topic_id], topic_id))
        return newest

    async def _copied_last(self, partition: TopicIdPartition) -> tuple[bool, int]:
        """Return the key of an incarnation by its copies.

        Raises:
            RemoteStorageNotReadyError: it cannot be read now; a guess would show clients another topic for a while.
        """
        try:
            return copied_last_ms(await self._views.current(partition))
        except RemoteStorageNotReadyError:
            raise
        except TierError:  # it was deleted meanwhile, or its rows are damaged
            return False, -1
