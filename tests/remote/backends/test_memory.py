import pytest

from tierd.remote.backends.memory import MemoryObjectStore
from tierd.testing import ObjectStoreContract, ObjectVersionsContract


class TestMemoryObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self) -> MemoryObjectStore:
        return MemoryObjectStore()
