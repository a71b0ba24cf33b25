"""The contract of state stores, for each kind."""

import pytest

from tests.contracts.restore_store import MakeStore, ReadContent, RestoreStoreContract
from tests.restore.stores.store_fixtures import KINDS
from tierd.restore.changelog.restore_store import RestoreStore
from tierd.restore.stores.dict_store import DictStore
from tierd.restore.stores.disk_store import DiskStore
from tierd.restore.stores.rocks_database import DEFAULT_FAMILY
from tierd.restore.stores.rocks_files import RocksFiles
from tierd.restore.stores.sqlite_store import SqliteFiles


class TestStores(RestoreStoreContract):
    @pytest.fixture(params=KINDS)
    def make_store(self, request: pytest.FixtureRequest) -> MakeStore:
        return lambda: KINDS[request.param]("counts")

    @pytest.fixture
    def read_content(self) -> ReadContent:
        return content_of_open


def content_of_open(store: RestoreStore) -> dict[bytes, bytes]:
    """Return what an open store has; RocksDB and SQLite let no second opener in."""
    if isinstance(store, DictStore):
        return dict(store.data)
    assert isinstance(store, DiskStore)
    match store._files:
        case SqliteFiles() as files:
            return dict(files._connection.execute("SELECT key, value FROM data"))
        case RocksFiles() as files:
            found = files._database._families[DEFAULT_FAMILY].items()
            return {bytes(key): value for key, value in found if isinstance(key, bytes)}
        case other:
            raise AssertionError(f"{other} is of no known kind")
