import sys
from pathlib import Path

import pytest

from tierd.config import PipelineSettings
from tierd.pipeline.jobs import spark_settings

SCRATCH = Path("/var/lib/tierd/pipeline")


def settings(**more: object) -> PipelineSettings:
    return PipelineSettings.model_validate(more)


@pytest.mark.parametrize(
    ("master", "settled"), [("local[2]", "local[2,4]"), ("local[*]", "local[*,4]"), ("local", "local[1,4]")]
)
def test_a_task_of_a_local_master_is_tried_as_often_as_on_a_cluster(master: str, settled: str) -> None:
    found = spark_settings(settings(master=master), SCRATCH)
    assert found["spark.master"] == settled
    assert found["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host:443", "local[2,1]"])
def test_another_master_is_left_as_it_is(master: str) -> None:
    assert spark_settings(settings(master=master), SCRATCH)["spark.master"] == master


def test_memory_and_scratch_are_those_of_the_settings() -> None:
    found = spark_settings(settings(driver_memory="2GiB", executor_memory="3GiB"), SCRATCH)
    assert found["spark.driver.memory"] == "2048m"
    assert found["spark.executor.memory"] == "3072m"
    assert found["spark.local.dir"] == str(SCRATCH)


def test_the_driver_keeps_our_python_whatever_the_executors_have() -> None:
    found = spark_settings(settings(master="yarn", spark_conf={"spark.pyspark.python": "./env/bin/python"}), SCRATCH)
    assert found["spark.pyspark.driver.python"] == sys.executable


def test_what_a_person_sets_goes_last() -> None:
    assert spark_settings(settings(spark_conf={"spark.ui.enabled": "true"}), SCRATCH)["spark.ui.enabled"] == "true"
