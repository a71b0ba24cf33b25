import pytest

from tierd.metadata import KeyValueStore, MemoryKeyValueStore
from tierd.testing import KeyValueStoreContract


class TestMemoryKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    def store(self) -> KeyValueStore:
        return MemoryKeyValueStore()

    @pytest.fixture
    def other(self, store: KeyValueStore) -> KeyValueStore:
        return store
