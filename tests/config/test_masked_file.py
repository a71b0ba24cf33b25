"""Configuration files without their secrets: no text that could be one is left, and all others are."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.config.secrets_everywhere import SECRETS, file_full_of_secrets
from tierd.config import read_masked
from tierd.errors import ConfigError
from tierd.masking import MASK


def masked_of(text: str, folder: Path, env: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - values of YAML
    file = folder / "tierd.yaml"
    file.write_text(text)
    return read_masked(file, env or {}).tree


def test_file_with_secrets_everywhere_shows_none_of_them(tmp_path: Path) -> None:
    file, env = file_full_of_secrets(tmp_path)

    shown = json.dumps(read_masked(file, env).tree)

    assert "my-bucket" in shown
    assert "3cr3t" not in shown


def test_texts_that_were_masked_are_known_with_the_contents_of_files_and_credentials(tmp_path: Path) -> None:
    file, env = file_full_of_secrets(tmp_path)

    known = unquote("\n".join(read_masked(file, env).secrets))

    assert [secret for secret in SECRETS if secret not in known and not secret.startswith("comment")] == []
    assert SECRETS[0] not in repr(read_masked(file, env))


def test_values_that_are_no_secrets_are_shown(tmp_path: Path) -> None:
    text = """
        log_dirs: [{path: /var/lib/kafka/data}]
        kafka: {listeners: ["PLAINTEXT://127.0.0.1:9192"]}
        copy: {concurrency: 8, interval: 5s}
        catalogue: {enabled: false}
        drill: {command: [/usr/local/bin/check, --fast]}
    """

    assert masked_of(text, tmp_path) == {
        "log_dirs": [{"path": "/var/lib/kafka/data"}],
        "kafka": {"listeners": [{"protocol": "plaintext", "listen": "127.0.0.1:9192"}]},
        "copy": {"concurrency": 8, "interval": "5s"},
        "catalogue": {"enabled": False},
        "drill": {"command": ["/usr/local/bin/check", MASK]},
    }


def test_sources_of_secrets_are_shown_and_their_contents_are_not(tmp_path: Path) -> None:
    text = """
        remote: {s3: {access_key_id: "${ID}", secret_access_key: credential:s3-key, session_token: "${T:-hunter2}"}}
    """

    shown = masked_of(text, tmp_path, {"ID": "hunter3"})

    assert shown["remote"]["s3"] == {
        "access_key_id": "${ID}",
        "secret_access_key": "credential:s3-key",
        "session_token": "${T}",
    }


@pytest.mark.parametrize(
    "text",
    [
        "remote: hunter2",
        "remote: {s3: {secret_acces_key: hunter2}}",
        "remote: {s3: {secret_access_key: [hunter2]}}",
        "remote: {encryption: {keys: [hunter2]}}",
        "remote: {encryption: {keys: hunter2}}",
        "kafka: {listeners: ['hunter2']}",
        "kafka: {sasl: {users: {name: hunter2}}}",
        "pipeline: {spark_conf: {spark.conf: hunter2}}",
        "pipeline: {spark_conf: [hunter2]}",
        "remote: {backend: of-another-package, plugin: {user: hunter2}}",
        "passwords: [{a: hunter2}]",
        "cluster_id: [hunter2]",
        "remote: {s3: {endpoint_url: 'https://user:hunter2@store'}}",
    ],
)
def test_values_in_wrong_places_are_masked(text: str, tmp_path: Path) -> None:
    assert "hunter2" not in json.dumps(masked_of(text, tmp_path))


def test_secrets_that_stand_in_the_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(
        "remote: {s3: {secret_access_key: hunter2, session_token: credential:t, access_key_id: '${ID}'}}\n"
        "control: {mqtt: {password_file: /etc/tierd/mqtt}}\n"
    )

    assert read_masked(file, {}).written == ("remote.s3.secret_access_key",)


def test_file_that_is_no_yaml_shows_nothing(tmp_path: Path) -> None:
    assert masked_of("password: 'hunter2\n", tmp_path) == {}


def test_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_masked(tmp_path / "nothing", {})
