"""The settings of the Spark session that a run works in; imports no pyspark, for whoever starts spark-submit."""

import re
import sys
from pathlib import Path
from typing import Final

from tierd.config import PipelineSettings

_TASK_ATTEMPTS: Final = 4
_BRIEF_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java only passes blocks on, beside a broker: what a better compiler and collector cost, it would not earn back."""
_LOCAL = re.compile(r"local(\[(?P<cores>[^\],]+)\])?")


def spark_settings(settings: PipelineSettings, scratch: Path) -> dict[str, str]:
    """Return the properties of the session, those of ``spark_conf`` last.

    What is shuffled are hashes, which no compression makes smaller. Over TCP every task of Python would wait 40 ms for
    a delayed acknowledgement. A local master gives a task as many attempts as a
    cluster does; by itself it would give up a whole job with its first worker that is killed.

    Args:
        settings: of the pipeline.
        scratch: where Spark keeps its files; on a cluster only those of the driver.
    """
    settled = {
        "spark.master": settings.master,
        "spark.app.name": "tierd",
        "spark.driver.memory": _mebibytes(settings.driver_memory_bytes),
        "spark.executor.memory": _mebibytes(settings.executor_memory_bytes),
        "spark.local.dir": str(scratch),
        "spark.log.level": "WARN",
        "spark.pyspark.driver.python": sys.executable,  # spark.pyspark.python, that of the executors, would be next
        "spark.python.daemon.module": "tierd.pipeline.jobs.worker_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.shuffle.compress": "false",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(_TASK_ATTEMPTS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if (local := _LOCAL.fullmatch(settings.master)) is not None:
        settled["spark.master"] = f"local[{local['cores'] or 1},{_TASK_ATTEMPTS}]"
        settled["spark.driver.host"] = settled["spark.driver.bindAddress"] = "127.0.0.1"
        settled["spark.driver.extraJavaOptions"] = _BRIEF_JAVA
    return settled | settings.spark_conf


def _mebibytes(size_bytes: int) -> str:
    """As Java takes a heap's size: it knows no suffix for bytes."""
    return f"{size_bytes >> 20}m"
