"""Deployment: tierd on one host, as one configuration file describes it."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tierd.remote
import tierd.tiering
from tierd.app.engine.host_metadata import HostMetadata
from tierd.clock import Clock
from tierd.config import DrillSettings, EncryptionSettings, KafkaConnectionSettings, TierdConfig
from tierd.errors import TierError
from tierd.log import BrokerIdentity, MetaProperties

# Commands that read rows need nothing of these rooms: their modules are imported where they are used.
if TYPE_CHECKING:
    from tierd.app.engine.topic_policies import TopicPolicies
    from tierd.remote import KeyRing, ObjectKeyFactory, ObjectStore, ObjectStoreCall, SegmentStorage, Transform
    from tierd.tiering import StoredTier


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStores:
    """Both stores of the tier, open.

    Attributes:
        stored: the tier in its two stores.
        new_storage: maker of segment storages over the same objects, as for reads through a cache.
        ring: the keys that wrap the keys of segments.
    """

    stored: "StoredTier"
    new_storage: "partial[SegmentStorage]"
    ring: "KeyRing"


@dataclass(frozen=True, slots=True)
class Deployment(HostMetadata):
    """Configuration of tierd on this host, which opens the parts that one command needs.

    Attributes:
        config: the settings.
    """

    config: TierdConfig

    @property
    def key_prefix(self) -> str:
        """Return the beginning of every key in the bucket, before the cluster id."""
        return self.config.remote.key_prefix

    @property
    def encryption(self) -> EncryptionSettings:
        """Return the keys of the key ring, and which of them is active."""
        return self.config.remote.encryption

    @property
    def kafka(self) -> KafkaConnectionSettings | None:
        """Return the connection to the brokers; None where none is configured."""
        return self.config.leadership.kafka

    @property
    def drill(self) -> DrillSettings:
        """Return the settings of drills."""
        return self.config.drill

    @property
    def drill_dir(self) -> Path:
        """Return the directory in which drills restore."""
        return self.config.drill_dir

    async def known_cluster_id(self) -> str | None:
        """Return the cluster id as configured or as the log dirs name it; None when neither does."""
        configured = self.config.cluster_id
        try:
            found = await self.found_identities()
        except TierError:
            return configured
        named = [properties.cluster_id for properties in found.values() if isinstance(properties, MetaProperties)]
        return configured or next((cluster_id for cluster_id in named if cluster_id), None)

    def object_keys(self, identity: BrokerIdentity) -> "ObjectKeyFactory":
        """Return the keys of the cluster's objects, as the tier is configured now."""
        return tierd.remote.ObjectKeyFactory(self.config.remote.key_prefix, identity.cluster_id)

    def segment_storages(
        self, identity: BrokerIdentity, store: "ObjectStore", transform: "Transform"
    ) -> "partial[SegmentStorage]":
        """Return a maker of segment storages over ``store``; a cache to read ranges through may be given to it."""
        return tierd.remote.segment_storages(
            self.config.remote, store, transform, cluster_id=identity.cluster_id, broker_id=identity.node_id
        )

    @contextlib.asynccontextmanager
    async def object_store(
        self,
        *,
        clock: Clock,
        on_call: "Callable[[ObjectStoreCall], None] | None" = None,
        on_attempt: "Callable[[ObjectStoreCall], None] | None" = None,
    ) -> AsyncIterator["ObjectStore"]:
        """Open the configured object store, with deadlines, retries and observation around it; close it afterwards."""
        store = tierd.remote.open_object_store(
            self.config.remote,
            clock=clock,
            max_bytes_per_second=self.config.copying.max_bytes_per_second,
            on_call=on_call,
            on_attempt=on_attempt,
        )
        try:
            yield store
        finally:
            await store.close()

    @contextlib.asynccontextmanager
    async def tier(self, identity: BrokerIdentity, *, clock: Clock, read_only: bool) -> AsyncIterator[OpenStores]:
        """Open both stores of the tier; close them afterwards. ``read_only`` concerns the metadata store.

        Raises:
            TierError: a store cannot be opened.
        """
        async with (
            self.metadata_store(read_only=read_only) as rows,
            self.object_store(clock=clock) as objects,
        ):
            with contextlib.closing(tierd.remote.open_transform(self.config.remote)) as transform:
                new_storage = self.segment_storages(identity, objects, transform)
                stored = tierd.tiering.StoredTier(
                    objects=objects,
                    segments=new_storage(),
                    object_keys=self.object_keys(identity),
                    rows=rows,
                    row_keys=self.metadata_keys(identity),
                )
                yield OpenStores(stored=stored, new_storage=new_storage, ring=transform.ring)

    async def topic_policies(self, identity: BrokerIdentity, topics: set[str], *, clock: Clock) -> "TopicPolicies":
        """Return the policies of topics, after one question to the brokers about ``topics`` if Kafka is configured."""
        from tierd.app.engine.control_plane import control_plane  # noqa: PLC0415 - as above
        from tierd.app.engine.topic_policies import TopicPolicies  # noqa: PLC0415

        control = control_plane(self.config.leadership, identity, clock=clock, random=lambda: 0.5)
        if control.topic_configs is not None:
            for topic in topics:
                control.topic_configs.get(topic)  # the next refresh asks for this topic
            await control.topic_configs.refresh()
        return TopicPolicies(lambda: self.config.topics, control.topic_settings())
