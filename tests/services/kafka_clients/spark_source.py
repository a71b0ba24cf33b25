"""Spark's own source for Kafka, in a session of a process of its own.

Run as a script, this module is that process; imported, it is the client of a test.
"""

import base64
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tests.services.brief_java import SPARK_CONF
from tests.services.kafka_clients.partitions import Counts, Records, grouped, isolation_level
from tests.services.kafka_clients.programs import installed_jars
from tests.services.waiting import is_readable

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

JARS: Final = "spark-kafka"
_DEADLINE_S: Final = 120.0
_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}


class SparkSource:
    """Reader of topics with ``spark.read.format("kafka")``; a context manager, with which the session starts."""

    def __init__(self, scratch: Path) -> None:
        """Prepare the session, which keeps its files and its log in ``scratch``."""
        self._jars = ",".join(str(jar) for jar in installed_jars(JARS))
        self._scratch = scratch
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with (self._scratch / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.kafka_clients.spark_source", str(self._scratch), self._jars],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "it was entered"
        if error is not None:
            self._process.kill()
        self._process.communicate(timeout=60)  # the process ends with its input

    def read(self, bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
        """Read topics by a batch query, from the earliest to the latest offsets."""
        answer = self._asked(
            {
                "kafka.bootstrap.servers": bootstrap,
                "kafka.isolation.level": isolation_level(committed=committed),
                "subscribe": ",".join(dict.fromkeys(topic for topic, _ in wanted)),
            }
        )
        assert isinstance(answer, list), answer
        return grouped(answer, wanted)

    def run_cell(self, cell: str) -> str:
        """Run the text of a cell of a notebook, which has ``spark``, and return what it prints."""
        answer = self._asked({"cell": cell})
        assert isinstance(answer, dict), answer
        return str(answer["printed"])

    def _asked(self, order: Mapping[str, str]) -> object:
        assert self._process is not None, "it was entered"
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        assert is_readable(self._process.stdout, deadline_s=_DEADLINE_S), "the query takes too long"
        answer: object = json.loads(self._process.stdout.readline() or '"the session has ended; see spark.log"')
        return answer


def _serve(scratch: str, jars: str) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the client needs no import
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        **SPARK_CONF,
    }
    spark = SparkSession.builder.master("local[2]").appName("kafka").config(map=settings).getOrCreate()
    for line in sys.stdin:
        try:
            answer = _answer(spark, json.loads(line))
        except PySparkException as error:
            answer = str(error)[:3000]
        print(json.dumps(answer), flush=True)
    spark.stop()


def _answer(spark: "SparkSession", order: dict[str, str]) -> object:
    if "cell" in order:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(order["cell"], {"spark": spark})
        return {"printed": printed.getvalue()}
    options = {"startingOffsets": "earliest", "includeHeaders": "true", "failOnDataLoss": "true"}
    rows = spark.read.format("kafka").options(**options, **order).load().collect()
    return [_shown(row) for row in sorted(rows, key=lambda row: row.offset)]


def _shown(row: "Row") -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": round(row.timestamp.timestamp() * 1000),
        "timestampType": _TYPES[row.timestampType],
        "key": _base64(row.key),
        "value": _base64(row.value),
        "headers": [[header.key, _base64(header.value)] for header in row.headers or []],
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
