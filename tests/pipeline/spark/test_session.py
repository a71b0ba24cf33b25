import sys
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tierd.config import PipelineSettings
from tierd.pipeline.jobs.spark_session_settings import spark_settings

SOCKET_DIR = "spark.python.unix.domain.socket.dir"


def test_workers_of_a_session_run_this_python(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def accepted_socket_directory(spark: SparkSession, directory: str) -> str:
    """Return the directory for sockets of workers as Spark reads it; an error if Spark refuses it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.org.apache.spark
    entry = java.internal.config.Python.PYTHON_UNIX_DOMAIN_SOCKET_DIR()
    found: str = java.SparkConf(False).set(SOCKET_DIR, directory).get(entry).get()
    return found


def test_spark_accepts_the_longest_socket_directory_that_a_run_sets_and_no_longer_one(spark: SparkSession) -> None:
    directories = ["/" + "s" * size for size in range(40, 110)]
    settings = PipelineSettings()
    longest = max((one for one in directories if SOCKET_DIR in spark_settings(settings, Path(one))), key=len)
    assert accepted_socket_directory(spark, longest) == longest
    with pytest.raises(IllegalArgumentException, match="INVALID_CONF_VALUE"):
        accepted_socket_directory(spark, longest + "s")
