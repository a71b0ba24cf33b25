import base64
import re
from pathlib import Path

import pytest

from tierd.app.daemon.config_change import LIVE_KEYS
from tierd.config import config_warnings, load_config, protection_faults
from tierd.config.reference import main, render_markdown, render_yaml
from tierd.config.schema import TierdConfig
from tierd.config.traversal import all_locations

ROOT = Path(__file__).parents[2]


def load(tmp_path: Path, text: str, **env: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(text)
    return load_config(path, env)


@pytest.mark.parametrize(
    ("file", "rendered"), [("docs/configuration.md", render_markdown()), ("config/tierd.yaml", render_yaml())]
)
def test_generated_files_in_the_repository_agree_with_the_schema(file: str, rendered: str) -> None:
    assert (ROOT / file).read_text() == rendered, f"{file} is stale: run make docs"


def test_generated_file_can_be_loaded(tmp_path: Path) -> None:
    config = load(tmp_path, render_yaml())

    assert config.remote.s3
    assert config.remote.s3.bucket == "tierd"


def test_uncommented_keys_have_their_default_values_except_examples(tmp_path: Path) -> None:
    as_it_is = load(tmp_path, render_yaml())
    key = base64.b64encode(bytes(32)).decode()
    everything = re.sub(r"^( *)#(?=[\w-])", r"\1", render_yaml(), flags=re.MULTILINE)
    alone = re.sub(r"^  peers:\n(?:    .*\n)*", "", everything, flags=re.MULTILINE)  # SQLite is for one daemon
    uncommented = load(tmp_path, alone, TIERD_ENCRYPTION_KEY=key, TIERD_ENDPOINT_PASSWORD="secret")

    remote, topics, metadata = uncommented.remote, uncommented.topics, uncommented.metadata
    assert (topics.overrides[0].match, remote.encryption.keys[0].id) == ("orders", "2026-01")
    kafka = uncommented.kafka
    assert (kafka.listeners[0].listen, kafka.sasl.users[0].name) == ("127.0.0.1:9192", "etl")
    assert (kafka.access[0].principals, kafka.quotas[0].bytes_per_second) == ((".*",), None)
    encryption = remote.encryption.model_copy(update={"keys": ()})
    control = uncommented.control
    assert (control.mqtt.address, control.mqtt.endpoint) == ("127.0.0.1:1883", "tierd-1.example.com:9406")
    mqtt = control.mqtt.model_copy(update={"address": None, "endpoint": None})
    without_examples = {
        "control": control.model_copy(update={"mqtt": mqtt}),
        "kafka": kafka.model_copy(
            update={
                "listeners": (),
                "sasl": kafka.sasl.model_copy(update={"users": ()}),
                "access": (),
                "quotas": (),
            }
        ),
        "topics": topics.model_copy(update={"overrides": ()}),
        "leadership": uncommented.leadership.model_copy(update={"kafka": None}),
        "metadata": metadata.model_copy(update={"postgres": None, "redis": None}),
        "remote": remote.model_copy(update={"filesystem": None, "gcs": None, "azure": None, "encryption": encryption}),
    }
    assert uncommented.model_copy(update=without_examples) == as_it_is


def test_every_key_is_in_both_files_with_its_help() -> None:
    markdown, yaml = render_markdown(), render_yaml()

    for location in all_locations(TierdConfig):
        assert re.search(rf"^[ #-]*{location[-1]}:", yaml, re.MULTILINE), location
        assert f"`{location[-1]}" in markdown or re.search(rf"\.{location[-1]}(\[\])?`", markdown), location
    assert "None" not in markdown
    assert "Undefined" not in markdown + yaml


def test_both_files_are_written_below_the_given_root(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "config").mkdir()

    main(tmp_path)

    assert (tmp_path / "docs/configuration.md").read_text() == render_markdown()
    assert (tmp_path / "config/tierd.yaml").read_text() == render_yaml()


@pytest.mark.parametrize("example", sorted((ROOT / "config").glob("*.yaml")), ids=lambda example: example.stem)
def test_every_example_file_is_valid(example: Path, tmp_path: Path) -> None:
    (tmp_path / "kafka-password").write_text("secret")
    (tmp_path / "metadata-dsn").write_text("postgresql://tierd:secret@metadata.example.com/tierd")
    (tmp_path / "tier-key-2026-01").write_text(base64.b64encode(bytes(32)).decode())

    (tmp_path / "spark-secret").write_text("d5f1c2e7")
    for user in ("etl", "audit"):
        (tmp_path / f"endpoint-{user}").write_text("d5f1c2e7")
    config = load_config(example, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert not protection_faults(config.pipeline.master, config.pipeline.protected_conf())

    assert config.log_dirs


@pytest.mark.parametrize("name", ["kafka", "several-brokers"])
def test_example_of_a_cluster_follows_the_leaders_of_kafka_and_keeps_more_than_the_broker(
    tmp_path: Path, name: str
) -> None:
    for credential in ("kafka-password", "metadata-dsn", "tier-key-2026-01"):
        (tmp_path / credential).write_text(base64.b64encode(bytes(32)).decode())

    config = load_config(ROOT / "config" / f"{name}.yaml", {"CREDENTIALS_DIRECTORY": str(tmp_path)})

    assert config.leadership.source == "kafka"
    assert config.topics.for_topic("orders").retention_ms == 365 * 86_400_000
    assert config_warnings(config) == []


def test_example_of_the_endpoint_lets_other_hosts_in_with_a_login_alone(tmp_path: Path) -> None:
    for credential in ("metadata-dsn", "endpoint-etl", "endpoint-audit"):
        (tmp_path / credential).write_text("postgresql://tierd:secret@127.0.0.1/tierd")

    config = load_config(ROOT / "config" / "read-endpoint.yaml", {"CREDENTIALS_DIRECTORY": str(tmp_path)})

    assert all(each.has_login and each.is_tls for each in config.kafka.listeners)
    assert config_warnings(config) == []


def test_example_of_push_sends_and_keeps_copies_with_certificates(tmp_path: Path) -> None:
    (tmp_path / "metadata-dsn").write_text("postgresql://tierd:secret@127.0.0.1/tierd")

    config = load_config(ROOT / "config" / "push.yaml", {"CREDENTIALS_DIRECTORY": str(tmp_path)})

    assert config.push.is_leader
    assert config.push.is_standby
    assert config.push.tls.is_configured
    assert config_warnings(config) == []


def test_quickstart_uses_only_paths_in_the_run_directory() -> None:
    config = load_config(ROOT / "config" / "quickstart.yaml", {})

    for path in (config.state_dir, config.log_dirs[0].path, config.remote.filesystem and config.remote.filesystem.path):
        assert path
        assert path.is_relative_to(ROOT / ".run")


def test_reload_rule_of_the_page_names_every_live_key() -> None:
    (rule,) = re.findall(r"^- \*\*Reload\.\*\*(?:.|\n  )*", render_markdown(), re.MULTILINE)

    for key in LIVE_KEYS:
        assert f"`{key}`" in rule or f"`{key.split('.')[0]}`" in rule, key
