"""Examples of docs/backends.md, run as they are printed."""

import re
import tomllib
from pathlib import Path

import pytest

from acme_tierd import AcmeSettings
from tests.fakes.installed_package import EXAMPLE_BACKEND
from tierd.config import load_config
from tierd.metadata import MetadataConnector, MetadataOpening
from tierd.testing import KeyValueStoreContract

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()


def blocks(language: str) -> list[str]:
    """Return every block of ``language``, without the indent of its list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


async def test_connector_of_the_page_opens_its_store() -> None:
    names: dict[str, object] = {}
    exec(compile(blocks("python")[0], "docs/backends.md", "exec"), names)
    connector = names["ROWS"]
    assert isinstance(connector, MetadataConnector)
    settings = connector.settings.model_validate({"address": "db:1", "patience": "3s", "password": "hush"})
    store = await connector.open(settings, MetadataOpening(timeout_s=5, read_only=False))
    await store.create("a", b"1")
    assert await store.get("a") == b"1"
    assert connector.keys("c1").all_prefix == "tierd/v1/c1/"


def test_test_class_of_the_page_is_a_contract() -> None:
    names: dict[str, object] = {}
    exec(compile(blocks("python")[1], "docs/backends.md", "exec"), names)
    found = names["TestAcmeKeyValueStore"]
    assert isinstance(found, type)
    assert issubclass(found, KeyValueStoreContract)


def test_entry_points_of_the_page_are_those_of_the_example() -> None:
    declared = tomllib.loads((EXAMPLE_BACKEND / "pyproject.toml").read_text())["project"]
    assert tomllib.loads(blocks("toml")[0])["project"]["entry-points"] == declared["entry-points"]


def test_configuration_of_the_page_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    section = blocks("yaml")[0].replace("/etc/tierd/acme-password", str(password)).replace("acme  ", "acme_tierd:ROWS ")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tierd.yaml"
    path.write_text(f"log_dirs: [{{path: /k}}]\nremote: {{backend: filesystem, filesystem: {{path: /t}}}}\n{section}")
    plugin = load_config(path, {}).metadata.plugin
    assert isinstance(plugin, AcmeSettings)
    assert plugin.path == Path("/var/lib/tierd/acme.db")
