"""Spark session, one per process: a start takes ten seconds."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.services.brief_java import OPTIONS
from tierd.config.spark_protection import PROTECTION

# Warnings of pyspark and py4j about unclosed resources, and of pyspark about pandas and Arrow versions.
_THEIR_WARNINGS = (
    r"ignore:unclosed <socket\.socket:ResourceWarning",
    r"ignore:unclosed file <_io\.:ResourceWarning",
    r"ignore:subprocess \d+ is still running:ResourceWarning",
    r"ignore::DeprecationWarning:pyspark",
    r"ignore::FutureWarning:pyspark",
    r"ignore::UserWarning:pyspark",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this directory: all of them use a session."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for line in _THEIR_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(line))


def _protected() -> SparkSession.Builder:
    """Return a builder with the settings of runs, which docs/spark.md recommends for other sessions too."""
    builder: SparkSession.Builder = SparkSession.Builder()
    for name, value in PROTECTION.items():
        builder = builder.config(name, value)
    return builder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session of two threads, without a user interface, whose workers run this Python."""
    root = tmp_path_factory.mktemp("spark")
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")}
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            _protected()
            .master("local[2]")
            .appName("tierd tests")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(root / "local"))
            .config("spark.sql.warehouse.dir", str(root / "warehouse"))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.python.daemon.module", "tierd.pipeline.jobs.worker_daemon")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={root} {OPTIONS}")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
