import pytest

from tests.contracts.object_store import ObjectStoreContract
from tierd.remote.backends.memory import MemoryObjectStore


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()
