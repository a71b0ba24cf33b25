"""Spark session in a process of its own that reads the tier on demand, as the notebook of a user does.

Run as a script, this module is that process; imported, it is the client of a test.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.scenarios.keyed_traffic import SeenRecord
from tests.services.brief_java import SPARK_CONF


class SparkReader:
    """Reader of topics of one installation; a context manager, with which the session starts."""

    def __init__(self, config_file: Path, scratch: Path) -> None:
        self._arguments = [str(config_file), str(scratch)]
        self._log = (scratch.with_suffix(".log")).open("wb")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.spark_reader", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "it was entered"
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        self._process.stdin.close()  # the process ends with its Java
        self._process.wait(60)
        self._process.stdout.close()
        self._log.close()

    def read(self, topic: str) -> list[SeenRecord]:
        """Read the committed records of a topic in the tier by a new query."""
        assert self._process is not None, "it was entered"
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        self._process.stdin.write(topic + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the session has ended; see its log"
        found = json.loads(answer)
        assert isinstance(found, list), f"the query failed: {found}"
        return [SeenRecord(offset, _decoded(key), _decoded(value)) for offset, key, value in found]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _serve(config_file: str, scratch: str) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the client needs no import
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    from tierd.pipeline import register  # noqa: PLC0415 - the same

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.python.unix.domain.socket.enabled": "true",
        **SPARK_CONF,
    }
    spark = SparkSession.builder.master("local[1]").appName("reader").config(map=settings).getOrCreate()
    register(spark)
    for line in sys.stdin:
        query = spark.read.format("tierd").option("config", config_file).option("subscribe", line.strip())
        try:
            rows = query.load().selectExpr("offset", "base64(key) k", "base64(value) v").orderBy("offset").collect()
            answer: object = [[row.offset, row.k, row.v] for row in rows]
        except PySparkException as error:
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
