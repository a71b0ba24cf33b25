import pytest

from tests.contracts.object_store import ObjectStoreContract
from tests.contracts.object_versions import ObjectVersionsContract
from tierd.remote.backends.memory import MemoryObjectStore


class TestMemoryObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()
