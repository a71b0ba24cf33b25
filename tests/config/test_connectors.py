"""Backends of other packages in the configuration: found, checked, and their settings validated by their own schema."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from acme_tierd import AcmeSettings
from tests.fakes.installed_package import EXAMPLE_BACKEND, install, write_dist_info
from tierd.config import MetadataSettings, TierdConfig, load_config
from tierd.errors import ConfigError

LOG_DIRS = "log_dirs: [{path: /var/lib/kafka/data}]\n"
FILESYSTEM = "remote: {backend: filesystem, filesystem: {path: /mnt/tier}}\n"

Write = Callable[[str], str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the import path with the example package."""
    install(EXAMPLE_BACKEND, tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture
def module(site: Path, request: pytest.FixtureRequest) -> Write:
    """Write a module with the given text; return its unique name."""
    name = "plugin_" + "".join(letter if letter.isalnum() else "_" for letter in request.node.name)

    def write(text: str) -> str:
        (site / f"{name}.py").write_text(text)
        return name

    return write


def load(tmp_path: Path, text: str, **env: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(LOG_DIRS + text)
    return load_config(path, env)


def faults(tmp_path: Path, text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **env)
    return [str(fault).removeprefix(f"{tmp_path}/") for fault in caught.value.faults]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", ["acme", "acme_tierd:ROWS", "acme_tierd.ROWS"])
def test_metadata_backend_of_package_has_settings_of_its_own(tmp_path: Path, name: str) -> None:
    text = f"metadata: {{backend: {name}, plugin: {{path: /var/lib/tierd/acme.db, password: hush}}}}\n"
    config = load(tmp_path, text + FILESYSTEM)

    assert isinstance(config.metadata.plugin, AcmeSettings)
    assert config.metadata.plugin.path == Path("/var/lib/tierd/acme.db")
    assert config.metadata.plugin.password is not None
    assert config.metadata.plugin.password.get_secret_value() == "hush"
    assert "hush" not in repr(config)
    assert "hush" not in config.model_dump_json()
    assert "acme.db" in config.model_dump_json()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", ["acme", "acme_tierd:OBJECTS"])
def test_object_store_of_package_has_settings_of_its_own(tmp_path: Path, name: str) -> None:
    config = load(tmp_path, f"remote: {{backend: {name}, key_prefix: a/b, plugin: {{path: /mnt/acme.db}}}}\n")

    assert config.remote.plugin == AcmeSettings(path=Path("/mnt/acme.db"), password=None, password_file=None)
    assert (config.remote.key_prefix, config.metadata.backend) == ("a/b", "sqlite")


@pytest.mark.usefixtures("site")
def test_config_with_plugins_is_made_of_importable_classes(tmp_path: Path) -> None:
    plugin = "{backend: acme, plugin: {path: /mnt/acme.db, password: hush}}"
    config = load(tmp_path, f"metadata: {plugin}\nremote: {plugin}\n")

    assert (type(config), type(config.metadata)) == (TierdConfig, MetadataSettings)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.usefixtures("site")
def test_secrets_and_paths_of_a_plugin_are_read_like_all_others(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "acme").write_text("from systemd\n")
    written = {
        "password_file: ./password": "from a file",
        "password: ${ACME}": "from the environment",
        "password: credential:acme": "from systemd",
    }
    env = {"ACME": "from the environment", "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    for line, expected in written.items():
        text = f"metadata:\n  backend: acme\n  plugin:\n    path: ./a.db\n    {line}\n{FILESYSTEM}"
        config = load(tmp_path, text, **env)
        assert isinstance(config.metadata.plugin, AcmeSettings)
        assert config.metadata.plugin.path == tmp_path / "a.db"
        assert config.metadata.plugin.password is not None
        assert config.metadata.plugin.password.get_secret_value() == expected


@pytest.mark.usefixtures("site")
def test_daemon_is_found_without_the_secrets_of_a_plugin(tmp_path: Path) -> None:
    path = tmp_path / "tierd.yaml"
    plugin = "{path: /a.db, password: 'credential:acme'}"
    path.write_text(f"{LOG_DIRS}metadata: {{backend: acme, plugin: {plugin}}}\n{FILESYSTEM}")

    config = load_config(path, {}, secrets=False)

    assert isinstance(config.metadata.plugin, AcmeSettings)
    assert config.metadata.plugin.password is not None
    assert config.metadata.plugin.password.get_secret_value() == "not read"


@pytest.mark.usefixtures("site")
def test_faults_in_a_plugin_section_have_line_and_column(tmp_path: Path) -> None:
    text = "metadata:\n  backend: acme\n  plugin:\n    paht: /a\n    password: {a: hush}\n" + FILESYSTEM

    found = faults(tmp_path, text)

    assert [fault.partition(": ")[0] for fault in found] == ["tierd.yaml:4:3", "tierd.yaml:5:5", "tierd.yaml:6:15"]
    assert "metadata.plugin.path is missing" in found[0]
    assert "unknown key metadata.plugin.paht: did you mean metadata.plugin.path?" in found[1]
    assert "metadata.plugin.password" in found[2]
    assert "hush" not in "".join(found)


@pytest.mark.usefixtures("site")
def test_missing_plugin_section_is_a_fault_that_names_its_required_key(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, f"metadata: {{backend: acme}}\n{FILESYSTEM}")

    assert "metadata.plugin.path is missing: the database file" in found


@pytest.mark.usefixtures("site")
def test_path_of_plugin_in_a_log_dir_is_a_fault(tmp_path: Path) -> None:
    plugin = "{path: /var/lib/kafka/data/acme.db, password: hush}"
    (found,) = faults(tmp_path, f"metadata: {{backend: acme, plugin: {plugin}}}\n{FILESYSTEM}")

    assert found.startswith("tierd.yaml:2:42: metadata.plugin.path: /var/lib/kafka/data/acme.db is inside the log dir")


def test_built_in_backend_with_a_plugin_section_is_a_fault(tmp_path: Path) -> None:
    text = "metadata: {backend: sqlite, plugin: {}}\n" + FILESYSTEM
    (found,) = faults(tmp_path, text)

    assert "metadata.plugin: backend sqlite is built in and has no section plugin: remove one of them" in found


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (
            "acne",
            "'acne' is not sqlite, postgres or redis, and no installed package provides it",
        ),
        ("acne", "did you mean acme?"),
        ("postgre", "did you mean postgres?"),
        ("nowhere.store:ROWS", "nowhere.store:ROWS cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("acme_tierd:NOTHING", "acme_tierd:NOTHING cannot be imported: AttributeError: "),
        ("acme_tierd:AcmeSettings", "acme_tierd:AcmeSettings is no connector: it has no interface_version"),
        ("acme_tierd:OBJECTS", "acme_tierd:OBJECTS is no connector for metadata backends: it has no function keys"),
    ],
)
def test_unavailable_backend_is_one_fault_at_its_name(tmp_path: Path, name: str, fault: str) -> None:
    text = f"metadata:\n  backend: {name}\n  plugin: {{anything: {{at: all}}}}\n{FILESYSTEM}"
    (found,) = faults(tmp_path, text)

    assert found.startswith("tierd.yaml:3:12: metadata.backend: ")
    assert fault in found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raise RuntimeError('broken\\nat once')\n", "cannot be imported: RuntimeError: broken at once"),
        (
            "class C:\n    interface_version = 2\n",
            "is written for version 2 of tierd's interface for metadata backends",
        ),
        ("class C:\n    interface_version = '1'\n", "is no connector: it has no interface_version"),
        ("class C:\n    interface_version = 1\n", "its settings are no class derived from PluginSettings"),
        (
            "from acme_tierd import AcmeSettings\nclass C:\n    interface_version = 1\n    settings = AcmeSettings\n",
            "is no connector for metadata backends: it has no function open",
        ),
    ],
    ids=["raises", "version", "no version", "no settings", "no open"],
)
def test_connector_that_does_not_fit_is_a_fault(tmp_path: Path, module: Write, text: str, fault: str) -> None:
    (found,) = faults(tmp_path, f"metadata: {{backend: '{module(text)}:C', plugin: {{}}}}\n{FILESYSTEM}")

    assert found.startswith("tierd.yaml:2:21: metadata.backend: ")
    assert fault in found


def test_backend_name_of_several_packages_is_a_fault(tmp_path: Path, site: Path) -> None:
    write_dist_info(site, "other", "1.0", {"tierd.object_stores": {"acme": "other:OBJECTS"}})

    (found,) = faults(tmp_path, "remote: {backend: acme, plugin: {path: /a}}\n")

    expected = "several packages provide the object store 'acme': write the one that is meant, acme_tierd:OBJECTS and "
    assert expected in found


@pytest.mark.usefixtures("site")
def test_faults_of_both_backends_and_other_keys_are_reported_at_once(tmp_path: Path) -> None:
    text = "metadata: {backend: acne}\nremote: {backend: nothing, key_prefix: /a/}\ncopy: {interval: 3}\n"

    found = faults(tmp_path, text)

    assert [fault.partition(": ")[2].partition(":")[0] for fault in found] == [
        "metadata.backend",
        "remote.backend",
        "remote.key_prefix",
        "copy.interval",
    ]
