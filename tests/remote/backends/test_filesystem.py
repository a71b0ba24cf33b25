from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tierd.remote.backends.filesystem import FilesystemObjectStore

from tests.contracts.object_store import ObjectStoreContract


class TestFilesystemObjectStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FilesystemObjectStore]:
        store = FilesystemObjectStore(tmp_path / "tier")
        yield store
        await store.close()
