"""Stores of other packages: opened by their connector, under tierd's deadlines, with the keys of their factory."""

import asyncio
import sys
import traceback
from pathlib import Path

import pytest

from acme_tierd import AcmeSettings
from tierd.config import MetadataSettings, PluginSettings
from tierd.errors import BackendUnavailableError, MetadataError
from tierd.masking import MaskedError
from tierd.metadata import (
    Batch,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataConnector,
    MetadataKeyFactory,
    MetadataOpening,
    Put,
    metadata_keys,
    open_metadata,
)

PASSWORD = "hush"


class HangingStore(MemoryKeyValueStore):
    """Store that never answers a read."""

    async def get(self, key: str) -> bytes | None:
        await asyncio.get_running_loop().create_future()
        raise AssertionError(key)


async def _open_hanging(settings: PluginSettings, opening: MetadataOpening) -> KeyValueStore:
    del settings, opening
    return HangingStore()


async def _never_open(settings: PluginSettings, opening: MetadataOpening) -> KeyValueStore:
    del settings, opening
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def _fail_to_open(settings: PluginSettings, opening: MetadataOpening) -> KeyValueStore:
    del settings, opening
    raise ConnectionRefusedError(f"acme://user:{PASSWORD}@db.example.com")


class LeakyStore(MemoryKeyValueStore):
    """Store that lets the exceptions of its client through."""

    async def get(self, key: str) -> bytes | None:
        raise PermissionError(f"acme://user:{PASSWORD}@db.example.com/{key}")


async def _open_leaky(settings: PluginSettings, opening: MetadataOpening) -> KeyValueStore:
    del settings, opening
    return LeakyStore()


LEAKY = MetadataConnector(interface_version=1, settings=PluginSettings, open=_open_leaky)
HANGING = MetadataConnector(interface_version=1, settings=PluginSettings, open=_open_hanging)
CLOSED = MetadataConnector(interface_version=1, settings=PluginSettings, open=_never_open)
FAILING = MetadataConnector(interface_version=1, settings=PluginSettings, open=_fail_to_open)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this module be found by a dotted name."""
    monkeypatch.setitem(sys.modules, "connectors_of_a_test", sys.modules[__name__])


def settings_of(name: str, plugin: PluginSettings | None = None) -> MetadataSettings:
    return MetadataSettings(backend=name, plugin=plugin or PluginSettings(), timeout_s=0.01)


def acme(path: Path, password: str = "open sesame") -> MetadataSettings:
    plugin = AcmeSettings.model_validate({"path": path, "password": password})
    return MetadataSettings(backend="acme_tierd:ROWS", plugin=plugin)


async def test_store_of_package_is_opened_and_kept_between_two_openings(tmp_path: Path) -> None:
    settings, nowhere = acme(tmp_path / "rows.db"), tmp_path / "metadata.db"
    store = await open_metadata(settings, sqlite_path=nowhere, read_only=False)
    await store.create("a", b"1")
    await store.close()
    store = await open_metadata(settings, sqlite_path=nowhere, read_only=True)
    assert await store.get("a") == b"1"
    with pytest.raises(BackendUnavailableError, match="reading only"):
        await store.apply(Batch([Put("a", b"2")]))
    await store.close()
    assert not nowhere.exists()


async def test_errors_of_a_connector_are_those_of_every_backend(tmp_path: Path) -> None:
    for settings, read_only in ((acme(tmp_path / "a.db", "wrong"), False), (acme(tmp_path / "a.db"), True)):
        with pytest.raises(MetadataError) as caught:
            await open_metadata(settings, sqlite_path=tmp_path / "metadata.db", read_only=read_only)
        assert caught.value.remedy


async def test_error_that_a_connector_does_not_translate_is_reported_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="failed to open with ConnectionRefusedError") as caught:
        await open_metadata(settings_of("connectors_of_a_test:FAILING"), sqlite_path=tmp_path, read_only=False)
    assert PASSWORD not in f"{caught.value} {caught.value.remedy}"
    assert PASSWORD not in "".join(traceback.format_exception(caught.value)), "a log shows causes too"


async def test_error_that_a_store_of_a_package_does_not_translate_is_reported_without_its_secrets(
    tmp_path: Path,
) -> None:
    store = await open_metadata(settings_of("connectors_of_a_test:LEAKY"), sqlite_path=tmp_path, read_only=False)
    with pytest.raises(MaskedError) as caught:
        await store.get("a")
    assert "db.example.com" in str(caught.value)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    await store.close()


async def test_connector_that_hangs_while_it_opens_ends_at_its_deadline(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="did not open in time"):
        await open_metadata(settings_of("connectors_of_a_test:CLOSED"), sqlite_path=tmp_path, read_only=False)


async def test_call_of_a_store_of_a_package_has_the_deadline_of_the_settings(tmp_path: Path) -> None:
    store = await open_metadata(settings_of("connectors_of_a_test:HANGING"), sqlite_path=tmp_path, read_only=False)
    with pytest.raises(BackendUnavailableError, match=r"did not answer within 0\.01 s"):
        await store.get("a")
    await store.close()


async def test_package_that_is_missing_at_open_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="cannot be imported") as caught:
        await open_metadata(settings_of("nowhere_to_be_found:ROWS"), sqlite_path=tmp_path, read_only=False)
    assert "check-config" in caught.value.remedy


def test_key_factory_of_a_connector_makes_the_keys_of_its_store(tmp_path: Path) -> None:
    assert metadata_keys(acme(tmp_path / "a.db"), "c1").all_prefix == "acme/v1/c1/"
    assert metadata_keys(MetadataSettings(), "c1").all_prefix == "v1/c1/"


@pytest.mark.parametrize("root", ["a", "/" * 65, "a b/", "ä/", "a\n/"])
def test_root_that_cannot_begin_a_key_is_refused(root: str) -> None:
    with pytest.raises(ValueError, match="cannot begin a key"):
        MetadataKeyFactory("c1", root=root)
