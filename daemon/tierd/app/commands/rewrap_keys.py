"""Composition of ``tierd rewrap-keys``: every prefix that the tier was ever filled under, and the key ring."""

import contextlib
from collections.abc import AsyncGenerator

from tierd.app.engine.deployment import Deployment
from tierd.clock import SystemClock
from tierd.errors import ConfigError, ConfigFault
from tierd.metadata import KeyValueStore, MetadataKeyFactory, list_partitions, read_partition
from tierd.model import TopicPartition
from tierd.remote import KeyRewrapping, ObjectKeyFactory, RewrapOutcome, open_key_ring


async def rewrap_keys(
    deployment: Deployment, partitions: list[TopicPartition] | None, *, dry_run: bool
) -> AsyncGenerator[RewrapOutcome, None]:
    """Yield the outcome for every manifest. A daemon may run meanwhile.

    Raises:
        ConfigError: no key is active, or the cluster is not known.
        TierError: a store does not answer.
    """
    ring = open_key_ring(deployment.encryption)
    if ring.active_id is None:
        message = "rewrap-keys needs remote.encryption.active_key, the id of a key in remote.encryption.keys"
        raise ConfigError([ConfigFault(deployment.config_file, 0, 0, message)])
    identity = await deployment.identity()
    configured, row_keys = deployment.object_keys(identity), deployment.metadata_keys(identity)
    async with (
        deployment.metadata_store(read_only=True) as rows,
        deployment.object_store(clock=SystemClock()) as store,
    ):
        rewrapping = KeyRewrapping(store, ring, dry_run=dry_run)
        for keys in await _factories(rows, row_keys, configured):
            async with contextlib.aclosing(rewrapping.run(keys, partitions)) as outcomes:
                async for outcome in outcomes:
                    yield outcome


async def _factories(
    rows: KeyValueStore, row_keys: MetadataKeyFactory, configured: ObjectKeyFactory
) -> list[ObjectKeyFactory]:
    """Return the configured prefix, and every other one under which a segment lies: old segments are rewrapped too."""
    prefixes = {configured.prefix: configured}
    for partition in await list_partitions(rows, row_keys):
        for metadata in (await read_partition(rows, row_keys, partition)).list():
            keys = configured.for_custom_metadata(metadata.custom_metadata, partition.topic)
            prefixes.setdefault(keys.prefix, keys)
    return [prefixes[prefix] for prefix in sorted(prefixes)]
