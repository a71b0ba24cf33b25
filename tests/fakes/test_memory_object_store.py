import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.testing import ObjectStoreContract, ObjectVersionsContract


class TestMemoryObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()
