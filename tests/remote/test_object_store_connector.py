"""Object stores of other packages: errors of their connectors without secrets, and stores without versions."""

import sys
import traceback
from typing import cast

import pytest
from pydantic import SecretStr

from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.config import PluginSettings, RemoteSettings
from tierd.errors import ObjectVersionsUnknownError, RemoteStorageError
from tierd.masking import MaskedError
from tierd.model import ByteRange
from tierd.remote import Body, ObjectStore, ObjectStoreConnector, ObjectVersion, open_object_store

PASSWORD = "open sesame"


class SecretSettings(PluginSettings):
    password: SecretStr


def _fail_to_open(settings: SecretSettings) -> ObjectStore:
    raise ConnectionRefusedError(f"not with {settings.password.get_secret_value()}")


class StoreWithoutVersions:
    """A store of a package that was written before versions were part of the promise: it inherits nothing."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        return f"{key} {byte_range}".encode()

    async def close(self) -> None:
        self.is_closed = True


OLD_STORE = StoreWithoutVersions()
OLD = ObjectStoreConnector(interface_version=1, settings=SecretSettings, open=lambda _: cast("ObjectStore", OLD_STORE))
FAILING = ObjectStoreConnector(interface_version=1, settings=SecretSettings, open=_fail_to_open)


def test_error_that_a_connector_does_not_translate_is_reported_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "connectors_of_a_test", sys.modules[__name__])
    plugin = SecretSettings(password=SecretStr(PASSWORD))
    with pytest.raises(RemoteStorageError, match="failed to open with ConnectionRefusedError") as caught:
        open_object_store(RemoteSettings(backend="connectors_of_a_test:FAILING", plugin=plugin))
    assert PASSWORD not in f"{caught.value.remedy} {''.join(traceback.format_exception(caught.value))}"


async def test_store_of_a_package_without_versions_says_so_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "connectors_of_a_test", sys.modules[__name__])
    plugin = SecretSettings(password=SecretStr(PASSWORD))
    store = open_object_store(RemoteSettings(backend="connectors_of_a_test:OLD", plugin=plugin))
    assert await store.get("key", ByteRange(1, 2)) == f"key {ByteRange(1, 2)}".encode()
    version = ObjectVersion(key="key", version_id="", size_bytes=1, is_current=True)
    for call in (store.list_versions(""), store.delete_version(version)):
        with pytest.raises(ObjectVersionsUnknownError, match="cannot ask this kind"):
            await call
    await store.close()
    assert OLD_STORE.is_closed


class LeakyStore(MemoryObjectStore):
    """Lets the exceptions of its client through."""

    def __init__(self, settings: SecretSettings) -> None:
        super().__init__()
        self._error = PermissionError(f"denied to {settings.password.get_secret_value()}")

    async def put(self, key: str, body: Body) -> None:
        raise self._error

    async def check(self) -> None:
        raise ValueError("at the check") from self._error

    async def delete(self, key: str) -> None:
        raise self._error


LEAKY = ObjectStoreConnector(interface_version=1, settings=SecretSettings, open=LeakyStore)


async def test_error_that_a_store_of_a_package_does_not_translate_is_told_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "connectors_of_a_test", sys.modules[__name__])
    plugin = SecretSettings(password=SecretStr(PASSWORD))
    store = open_object_store(RemoteSettings(backend="connectors_of_a_test:LEAKY", plugin=plugin))
    for call in (store.put("key", b""), store.check(), store.delete("key")):
        with pytest.raises(MaskedError) as caught:
            await call
        assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    await store.close()
