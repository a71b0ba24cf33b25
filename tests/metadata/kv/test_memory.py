import pytest

from tests.contracts.key_value_store import KeyValueStoreContract
from tierd.metadata import KeyValueStore, MemoryKeyValueStore


class TestMemoryKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    def store(self) -> KeyValueStore:
        return MemoryKeyValueStore()

    @pytest.fixture
    def other(self, store: KeyValueStore) -> KeyValueStore:
        return store
