"""The stores of this package keep what tierd asks of every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from acme_tierd import AcmeKeyValueStore, AcmeObjectStore
from acme_tierd.database import Database
from tierd.testing import KeyValueStoreContract, ObjectStoreContract


class TestAcmeKeyValueStore(KeyValueStoreContract):
    @pytest_asyncio.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[AcmeKeyValueStore]:
        store = await AcmeKeyValueStore.open(Database(tmp_path / "rows.db"))
        yield store
        await store.close()

    @pytest_asyncio.fixture
    async def other(self, store: AcmeKeyValueStore, tmp_path: Path) -> AsyncIterator[AcmeKeyValueStore]:
        other = await AcmeKeyValueStore.open(Database(tmp_path / "rows.db"))
        yield other
        await other.close()


class TestAcmeObjectStore(ObjectStoreContract):
    @pytest_asyncio.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[AcmeObjectStore]:
        store = AcmeObjectStore(Database(tmp_path / "objects.db"))
        yield store
        await store.close()
