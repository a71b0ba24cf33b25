"""Standalone cluster of Spark on this host: a master and one worker, which share a secret."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.services.brief_java import OPTIONS
from tests.services.waiting import wait_until
from tierd.pipeline.jobs.spark_session_settings import write_properties

_JARS = Path(pyspark.__file__).parent / "jars" / "*"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_DEADLINE_S = 300.0


@contextmanager
def standalone_cluster(root: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Run both with ``settings`` in a private file; yield the address of the master when the worker has joined."""
    root.mkdir()
    write_properties(root / "spark.properties", settings)
    common = ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(root / "spark.properties")]
    with _java(root / "master.log", ["org.apache.spark.deploy.master.Master", *common, "--port", "0"]):
        wait_until(
            lambda: _MASTER.search(_text(root / "master.log")) is not None, what="the master", deadline_s=_DEADLINE_S
        )
        found = _MASTER.search(_text(root / "master.log"))
        assert found is not None
        size = ["--cores", "2", "--memory", "1g", "--work-dir", str(root / "work"), found[1]]
        with _java(root / "worker.log", ["org.apache.spark.deploy.worker.Worker", *common, *size]):
            wait_until(lambda: _REGISTERED in _text(root / "worker.log"), what="the worker", deadline_s=_DEADLINE_S)
            yield found[1]


@contextmanager
def _java(log: Path, arguments: Sequence[str]) -> Iterator[None]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", *OPTIONS.split(), "-Xmx256m", "-cp", str(_JARS), *arguments],
            stdout=output,
            stderr=output,
            env=own | _environment(),
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _environment() -> dict[str, str]:
    """Return the variables that the scripts of Spark set; a worker needs that of Scala to start executors."""
    scala = next(_JARS.parent.glob("spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
    home = str(_JARS.parents[1])
    return {"SPARK_HOME": home, "SPARK_SCALA_VERSION": scala, "SPARK_LOCAL_IP": "127.0.0.1"}


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
