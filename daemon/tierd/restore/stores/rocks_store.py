"""RocksStore: a state store in a RocksDB directory, with its offset (changelog-restore 3.5)."""

import re
from functools import partial
from pathlib import Path
from typing import Final

from tierd.errors import install_extra
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.stores.disk_store import DiskStore
from tierd.restore.stores.store_files import StoreEngine, StoreFiles

DEFAULT_WRITE_BUFFER_BYTES: Final = 64 << 20
_FILE_NAMES: Final = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.[0-9]+)?|(MANIFEST|OPTIONS)-[0-9]+(\.dbtmp)?|[0-9]+\.(sst|log|dbtmp)"
    r"|rocksdict-config\.json"
)


class RocksStore(DiskStore):
    """Store in a RocksDB directory, which needs the extra ``rocksdb``. A batch and its offset are one unit."""

    def __init__(
        self, name: str, *, timestamped: bool = False, write_buffer_bytes: int = DEFAULT_WRITE_BUFFER_BYTES
    ) -> None:
        """Prepare a store.

        Args:
            name: as the topology has it.
            timestamped: values begin with the record's timestamp.
            write_buffer_bytes: size of a memory table; a crash costs about so many bytes to restore again.
        """
        engine = StoreEngine(_FILE_NAMES, partial(_opened, write_buffer_bytes=write_buffer_bytes))
        super().__init__(name, engine, timestamped=timestamped)


def _opened(name: str, directory: Path, *, write_buffer_bytes: int) -> StoreFiles:
    """Open the directory, or make its files.

    Raises:
        StoreFailedError: as ``StoreFiles``, or the package is not installed.
    """
    try:
        from tierd.restore.stores.rocks_files import RocksFiles  # noqa: PLC0415  rocksdict is an extra
    except ModuleNotFoundError as error:
        raise StoreFailedError(
            name, f"needs the package {error.name}, which is not installed", remedy=install_extra("rocksdb")
        ) from error
    return RocksFiles(name, directory, write_buffer_bytes=write_buffer_bytes)
