import pytest
from tierd.metadata import KeyValueStore, MemoryKeyValueStore

from tests.contracts.key_value_store import KeyValueStoreContract


class TestMemoryKeyValueStore(KeyValueStoreContract):
    @pytest.fixture
    def store(self) -> KeyValueStore:
        return MemoryKeyValueStore()
