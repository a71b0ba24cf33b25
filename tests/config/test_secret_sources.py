from pathlib import Path

import pytest

from tierd.config import S3Settings, TierdConfig, load_config
from tierd.errors import ConfigError

TEXT = """\
log_dirs: [{path: /var/lib/kafka/data}]
remote:
  backend: s3
  s3:
    bucket: tierd
"""


def load(tmp_path: Path, lines: str, **env: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(TEXT + lines)
    return load_config(path, env)


def load_without_secrets(tmp_path: Path, lines: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(TEXT + lines)
    return load_config(path, {}, secrets=False)


def fault(tmp_path: Path, lines: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, lines, **env)
    (found,) = caught.value.faults
    return str(found).removeprefix(f"{tmp_path}/tierd.yaml:")


def keys(config: TierdConfig) -> tuple[str, str]:
    s3 = config.remote.s3
    assert isinstance(s3, S3Settings)
    assert s3.access_key_id
    assert s3.secret_access_key
    return s3.access_key_id.get_secret_value(), s3.secret_access_key.get_secret_value()


def test_secrets_may_be_in_the_file_or_the_environment(tmp_path: Path) -> None:
    config = load(tmp_path, "    access_key_id: AK\n    secret_access_key: ${SECRET}\n", SECRET="s3cret")

    assert keys(config) == ("AK", "s3cret")


def test_secrets_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("AK\n")
    (tmp_path / "key").write_text("s3cret\r\n")

    config = load(tmp_path, f"    access_key_id_file: ./id\n    secret_access_key_file: {tmp_path}/key\n")

    assert keys(config) == ("AK", "s3cret")


def test_secrets_may_be_systemd_credentials(tmp_path: Path) -> None:
    (tmp_path / "s3-id").write_text("AK")
    (tmp_path / "s3-key").write_text("s3cret")

    config = load(
        tmp_path,
        "    access_key_id: credential:s3-id\n    secret_access_key: credential:s3-key\n",
        CREDENTIALS_DIRECTORY=str(tmp_path),
    )

    assert keys(config) == ("AK", "s3cret")


def test_secrets_are_in_no_text_of_the_configuration(tmp_path: Path) -> None:
    config = load(tmp_path, "    access_key_id: AKIA99\n    secret_access_key: s3cret\n")

    for shown in (repr(config), str(config), repr(config.model_dump()), config.model_dump_json()):
        assert "s3cret" not in shown
        assert "AKIA99" not in shown


def test_a_secret_of_the_wrong_type_is_not_repeated(tmp_path: Path) -> None:
    found = fault(tmp_path, "    access_key_id: AK\n    secret_access_key: 424242\n")

    assert found == "7:24: remote.s3.secret_access_key: is no text: put it in quotes"


def test_access_key_without_its_secret_key_is_a_fault(tmp_path: Path) -> None:
    assert fault(tmp_path, "    access_key_id: AK\n") == (
        "6:20: remote.s3.access_key_id: access_key_id is set without secret_access_key: "
        "set both, or neither for the AWS environment"
    )


def test_the_same_secret_from_two_places_is_a_fault(tmp_path: Path) -> None:
    lines = "    access_key_id: AK\n    secret_access_key: x\n    secret_access_key_file: ./key\n"

    assert fault(tmp_path, lines) == ("8:5: secret_access_key_file and secret_access_key are both set: remove one")


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    lines = "    access_key_id: AK\n    secret_access_key_file: ./gone\n"

    assert fault(tmp_path, lines) == (
        "7:29: remote.s3.secret_access_key_file: "
        f"cannot read the secret from {tmp_path}/gone: No such file or directory"
    )


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 70_000])
def test_a_file_without_a_secret_is_a_fault(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)

    found = fault(tmp_path, "    access_key_id: AK\n    secret_access_key_file: ./key\n")

    assert "holds no secret" in found


def test_a_credential_needs_systemd(tmp_path: Path) -> None:
    found = fault(tmp_path, "    access_key_id: AK\n    secret_access_key: credential:s3-key\n")

    assert found == (
        "7:24: remote.s3.secret_access_key: $CREDENTIALS_DIRECTORY is not set: "
        "run under systemd with LoadCredential=s3-key:/path"
    )


@pytest.mark.parametrize("name", ["..", "../shadow", "", "a/b"])
def test_credential_name_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    lines = f"    access_key_id: AK\n    secret_access_key: 'credential:{name}'\n"

    assert "is no name of a credential" in fault(tmp_path, lines, CREDENTIALS_DIRECTORY=str(tmp_path))


@pytest.mark.parametrize(
    "lines",
    [
        "    access_key_id: credential:s3-id\n    secret_access_key: credential:s3-key\n",
        "    access_key_id_file: /nonexistent/id\n    secret_access_key_file: /nonexistent/key\n",
        "    access_key_id: ${NOT_SET}\n    secret_access_key: ${NOT_SET}\n",
        "    access_key_id: ${NOT_SET}\n    secret_access_key_file: /nonexistent/key\n",
        "    proxy_url: credential:proxy\n    sse: {type: c, customer_key: credential:customer}\n",
        "  encryption:\n    active_key: a\n    keys: [{id: a, key: credential:a}, {id: b, key_file: /nonexistent/b}]\n",
        "  encryption:\n    active_key: a\n    keys:\n      - id: a\n        key: ${NOT_SET}\n",
        "metadata: {backend: postgres, postgres: {dsn: credential:dsn}}\n",
        "",
    ],
)
def test_file_with_missing_secrets_is_loaded_without_secrets(tmp_path: Path, lines: str) -> None:
    config = load_without_secrets(tmp_path, lines)

    assert config.state_dir == Path("/var/lib/tierd")


def test_load_without_secrets_reports_other_faults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_without_secrets(
            tmp_path, "    access_key_id: ${NOT_SET}\n    secret_access_key: ${NOT_SET}\n    region: ${NOT_SET}\n"
        )

    assert [fault.message.split(":")[0] for fault in caught.value.faults] == ["remote.s3.region"]
