import os
import sys
from pathlib import Path

import pytest

from tierd.config import PipelineSettings
from tierd.pipeline.jobs.spark_session_settings import process_umask, spark_environment, spark_settings

SCRATCH = Path("/var/lib/tierd/pipeline")


def settings(**more: object) -> PipelineSettings:
    return PipelineSettings.model_validate(more)


@pytest.mark.parametrize(
    ("master", "settled"), [("local[2]", "local[2,4]"), ("local[*]", "local[*,4]"), ("local", "local[1,4]")]
)
def test_task_of_a_local_master_has_as_many_attempts_as_on_a_cluster(master: str, settled: str) -> None:
    found = spark_settings(settings(master=master), SCRATCH)
    assert found["spark.master"] == settled
    assert found["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host:443", "local[2,1]"])
def test_cluster_master_is_passed_unchanged(master: str) -> None:
    assert spark_settings(settings(master=master, authenticate_secret="s"), SCRATCH)["spark.master"] == master


def test_session_has_the_memory_and_scratch_of_the_settings() -> None:
    found = spark_settings(settings(driver_memory="2GiB", executor_memory="3GiB"), SCRATCH)
    assert found["spark.driver.memory"] == "2048m"
    assert found["spark.executor.memory"] == "3072m"
    assert found["spark.local.dir"] == str(SCRATCH)


def test_driver_keeps_our_python_when_executors_have_another() -> None:
    found = spark_settings(settings(master="yarn", spark_conf={"spark.pyspark.python": "./env/bin/python"}), SCRATCH)
    assert found["spark.pyspark.driver.python"] == sys.executable


def test_spark_conf_of_the_user_overrides_other_settings() -> None:
    assert spark_settings(settings(spark_conf={"spark.ui.enabled": "true"}), SCRATCH)["spark.ui.enabled"] == "true"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[2,1]", "yarn", "k8s://https://host:443"])
def test_session_is_protected_with_a_secret_that_spark_makes(master: str) -> None:
    found = spark_settings(settings(master=master), SCRATCH)
    assert found["spark.authenticate"] == "true"
    assert found["spark.network.crypto.enabled"] == "true"
    assert found["spark.network.crypto.saslFallback"] == "false"
    assert found["spark.io.encryption.enabled"] == "true"
    assert found["spark.ui.enabled"] == "false"
    assert "spark.authenticate.secret" not in found


def test_session_of_standalone_cluster_has_the_secret_that_is_configured() -> None:
    found = spark_settings(settings(master="spark://host:7077", authenticate_secret="of the cluster"), SCRATCH)
    assert found["spark.authenticate.secret"] == "of the cluster"


def test_sockets_of_workers_are_in_the_scratch_directory_if_their_names_fit() -> None:
    scratch = Path("/" + "s" * 60)
    assert spark_settings(settings(), scratch)["spark.python.unix.domain.socket.dir"] == str(scratch)
    assert "spark.python.unix.domain.socket.dir" not in spark_settings(settings(), Path("/" + "s" * 61))


def test_workers_of_a_cluster_are_protected_by_a_token_and_not_by_file_modes() -> None:
    assert "spark.python.unix.domain.socket.enabled" not in spark_settings(settings(master="yarn"), SCRATCH)


def test_local_session_is_reachable_from_this_host_only() -> None:
    for master in ("local", "local[2]", "local[2,1]"):
        found = spark_settings(settings(master=master), SCRATCH)
        assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
        assert spark_environment(master) == {"SPARK_LOCAL_IP": "127.0.0.1"}
    assert spark_environment("yarn") == {}


def test_umask_of_the_process_is_read_without_changing_it() -> None:
    before = os.umask(0o027)
    try:
        assert process_umask() == 0o027
    finally:
        assert os.umask(before) == 0o027
