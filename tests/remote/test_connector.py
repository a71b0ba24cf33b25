"""Object stores of other packages: what their connectors raise is told without secrets."""

import sys
import traceback

import pytest
from pydantic import SecretStr

from tierd.config import PluginSettings, RemoteSettings
from tierd.errors import RemoteStorageError
from tierd.remote import ObjectStore, ObjectStoreConnector, open_object_store

PASSWORD = "open sesame"


class SecretSettings(PluginSettings):
    password: SecretStr


def _fail_to_open(settings: SecretSettings) -> ObjectStore:
    raise ConnectionRefusedError(f"not with {settings.password.get_secret_value()}")


FAILING = ObjectStoreConnector(interface_version=1, settings=SecretSettings, open=_fail_to_open)


def test_error_that_a_connector_does_not_translate_is_told_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "connectors_of_a_test", sys.modules[__name__])
    plugin = SecretSettings(password=SecretStr(PASSWORD))
    with pytest.raises(RemoteStorageError, match="failed to open with ConnectionRefusedError") as caught:
        open_object_store(RemoteSettings(backend="connectors_of_a_test:FAILING", plugin=plugin))
    assert PASSWORD not in f"{caught.value.remedy} {''.join(traceback.format_exception(caught.value))}"
