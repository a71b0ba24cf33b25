"""HostMetadata: the log dirs and the metadata store of one host, as its configuration file describes them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tierd.config import HostSettings
from tierd.errors import RefusedError
from tierd.log import META_PROPERTIES, BrokerIdentity, FoundIdentity, broker_identity, read_identities
from tierd.metadata import KeyValueStore, MetadataKeyFactory, metadata_keys, open_metadata


@dataclass(frozen=True, slots=True)
class HostMetadata:
    """Part of the configuration that is enough for commands which list rows of the metadata.

    Attributes:
        config: the settings.
        config_file: the file that has them: faults name it, and the Spark job reads it too.
    """

    config: HostSettings
    config_file: Path

    @property
    def state_dir(self) -> Path:
        """Return the directory of the lock, the control socket and the ledgers."""
        return self.config.state_dir

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """Return the log dirs."""
        return tuple(log_dir.path for log_dir in self.config.log_dirs)

    def require_outside_log_dirs(self, directory: Path) -> None:
        """Require that a directory to write into is in no log dir: no broker starts with what is not its own. Blocking.

        Log dirs are those of the configuration, also behind links, and every directory with a ``meta.properties``.

        Raises:
            RefusedError: it is in one, or is one.
        """
        own, resolved = {path.resolve() for path in self.log_dirs}, directory.resolve()
        for place in (resolved, *resolved.parents):
            if place in own or os.path.lexists(place / META_PROPERTIES):
                raise RefusedError(
                    f"{directory} is in the log dir {place}",
                    remedy="name a directory outside of the log dirs of brokers",
                )

    async def identity(self) -> BrokerIdentity:
        """Return the cluster and the broker, as they are configured or as the log dirs name them.

        Raises:
            ConfigError: cluster or node are not known, or contradictory.
            CheckpointError: a ``meta.properties`` cannot be understood.
            LogDirOfflineError: no log dir can be read.
        """
        config = self.config
        found = await self.found_identities()
        return broker_identity(self.config_file, cluster_id=config.cluster_id, node_id=config.node_id, found=found)

    async def found_identities(self) -> dict[Path, FoundIdentity]:
        """Return what the ``meta.properties`` of each log dir says."""
        return await asyncio.to_thread(read_identities, [log_dir.path for log_dir in self.config.log_dirs])

    def metadata_keys(self, identity: BrokerIdentity) -> MetadataKeyFactory:
        """Return the keys of the cluster's rows in the metadata store."""
        return metadata_keys(self.config.metadata, identity.cluster_id)

    @contextlib.asynccontextmanager
    async def metadata_store(self, *, read_only: bool) -> AsyncIterator[KeyValueStore]:
        """Open the configured metadata store; close it afterwards.

        Read only, a store that was never made counts as empty: nothing was ever copied then.

        Raises:
            MetadataError: the store is damaged, or refuses us, or the package that it needs is not installed.
            BackendUnavailableError: the store cannot be opened.
        """
        config = self.config
        store = await open_metadata(config.metadata, sqlite_path=config.sqlite_path, read_only=read_only)
        try:
            yield store
        finally:
            await store.close()
