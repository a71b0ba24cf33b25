"""Sessions of Spark that are open to others: faults of the file, each at its place."""

from pathlib import Path

import pytest

from tierd.config import is_on_this_host, load_config, protection_faults
from tierd.config.spark_protection import PROTECTION
from tierd.errors import ConfigError

FILE = """\
log_dirs:
  - path: /var/lib/kafka/data
remote:
  backend: filesystem
  filesystem: {path: /mnt/tier}
pipeline:
"""


def faults_of(tmp_path: Path, pipeline: str) -> list[str]:
    file = tmp_path / "tierd.yaml"
    file.write_text(FILE + "".join(f"  {line}\n" for line in pipeline.splitlines()))
    try:
        load_config(file, {})
    except ConfigError as error:
        return [f"{fault.line}: {fault.message}" for fault in error.faults]
    return []


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]", "yarn", "k8s://https://host:443"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.authenticate", "false"),
        ("spark.authenticate", "False"),
        ("spark.authenticate", "yes"),
        ("spark.network.crypto.enabled", "false"),
        ("spark.network.crypto.saslFallback", "true"),
        ("spark.io.encryption.enabled", "false"),
    ],
)
def test_setting_that_opens_a_session_is_a_fault_with_any_master(
    tmp_path: Path, master: str, setting: str, value: str
) -> None:
    pipeline = f'master: "{master}"\nspark_conf:\n  {setting}: "{value}"'
    (fault,) = faults_of(tmp_path, pipeline)
    assert fault.startswith(f"9: pipeline.spark_conf.{setting}: must be ")


def test_all_protection_faults_are_reported_at_once(tmp_path: Path) -> None:
    pipeline = 'schedule: never\nspark_conf: {spark.authenticate: "false", spark.io.encryption.enabled: "false"}'
    told = faults_of(tmp_path, pipeline)
    assert [each.split(": ")[1] for each in told] == [
        "pipeline.schedule",
        "pipeline.spark_conf.spark.authenticate",
        "pipeline.spark_conf.spark.io.encryption.enabled",
    ]


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_master_that_makes_no_secret_needs_one(tmp_path: Path, master: str) -> None:
    (fault,) = faults_of(tmp_path, f'master: "{master}"')
    assert fault.partition(": ")[2].startswith("pipeline.authenticate_secret: is missing")
    assert not faults_of(tmp_path, f'master: "{master}"\nauthenticate_secret: hush')


def test_secret_of_the_cluster_can_be_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    pipeline = f'master: "spark://host:7077"\nauthenticate_secret_file: {tmp_path / "secret"}'
    assert not faults_of(tmp_path, pipeline)
    settings = load_config(tmp_path / "tierd.yaml", {}).pipeline
    assert settings.protected_conf()["spark.authenticate.secret"] == "hush"
    assert "hush" not in repr(settings)


def test_tls_replaces_the_encryption_of_connections(tmp_path: Path) -> None:
    conf = '{spark.ssl.rpc.enabled: "true", spark.network.crypto.enabled: "false"}'
    assert not faults_of(tmp_path, f"master: yarn\nspark_conf: {conf}")


def test_pages_of_spark_are_allowed_only_for_sessions_on_this_host(tmp_path: Path) -> None:
    pages = 'spark_conf: {spark.ui.enabled: "true"}'
    assert not faults_of(tmp_path, f"master: local[2]\n{pages}")
    (fault,) = faults_of(tmp_path, f"master: yarn\n{pages}")
    assert "pipeline.spark_conf.spark.ui.enabled: must be false with a cluster" in fault


def test_session_without_any_setting_has_every_fault() -> None:
    found = [name for name, _ in protection_faults("spark://host:7077", {})]
    assert found == [
        "spark.authenticate",
        "spark.network.crypto.enabled",
        "spark.network.crypto.saslFallback",
        "spark.io.encryption.enabled",
        "spark.authenticate.secret",
    ]
    assert not protection_faults("yarn", PROTECTION)


def test_local_masters_are_recognised_as_on_this_host() -> None:
    masters = ("local", "local[2]", "local[*]", "local[2,4]", "local-cluster[1,1,600]", "yarn", "spark://local:7077")
    assert [is_on_this_host(master) for master in masters] == [True, True, True, True, False, False, False]
