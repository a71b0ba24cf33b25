import pytest
from tierd.remote.backends.memory import MemoryObjectStore

from tests.contracts.object_store import ObjectStoreContract


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()
