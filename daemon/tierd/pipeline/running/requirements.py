"""Requirements of the job on a host: pyspark, and a Java that it can use."""

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tierd.errors import SparkMissingError, install_extra

LOWEST_JAVA: Final = 17  # Spark 4
_ASKING_S: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """Locations of Spark and its Java.

    Attributes:
        home: Spark's own directory; ``bin/spark-submit`` is below it.
        java_home: None where ``java`` on the path is used.
        java_version: major version of Java.
    """

    home: Path
    java_home: Path | None
    java_version: int

    @property
    def submit(self) -> Path:
        """Return the path of the command that starts a job."""
        return self.home / "bin" / "spark-submit"


async def find_spark(java_home: Path | None) -> SparkInstallation:
    """Find pyspark and ask Java for its version.

    Args:
        java_home: as configured; None takes ``JAVA_HOME``, then ``java`` on the path.

    Raises:
        SparkMissingError: pyspark or Java is missing, or Java cannot be run or is too old.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkMissingError("pyspark is not installed", remedy=install_extra("spark"))
    home = java_home or (Path(os.environ["JAVA_HOME"]) if os.environ.get("JAVA_HOME") else None)
    found = str(home / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise SparkMissingError(
            "no Java: neither pipeline.java_home nor JAVA_HOME is set, and there is no java on the path",
            remedy=f"install Java {LOWEST_JAVA} or later, such as openjdk-{LOWEST_JAVA}-jre-headless",
        )
    version = _usable_version(found, await _ask_java(found))
    return SparkInstallation(Path(spec.origin).parent, home, version)


def java_version(text: str) -> int | None:
    """Return the major version in the answer of ``java -version``; None when the answer has none."""
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def _usable_version(path: str, answer: str) -> int:
    version = java_version(answer)
    if version is None:
        output = " | ".join(line.strip() for line in answer.splitlines() if line.strip()) or "nothing"
        raise SparkMissingError(
            f"{path} -version does not say which it is, but: {output}",
            remedy="try it by hand; where it fails under systemd only, install systemd/tierd-spark.conf as a drop-in",
        )
    if version < LOWEST_JAVA:
        raise SparkMissingError(
            f"{path} is Java {version}; Spark needs {LOWEST_JAVA}", remedy="set pipeline.java_home to a later one"
        )
    return version


async def _ask_java(path: str) -> str:
    try:
        asked = await asyncio.create_subprocess_exec(
            path, "-version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise SparkMissingError(
            f"{path} cannot be run: {error.strerror}", remedy="correct pipeline.java_home or JAVA_HOME"
        ) from error
    try:
        answer, _ = await asyncio.wait_for(asked.communicate(), _ASKING_S)
    except TimeoutError as error:
        raise SparkMissingError(
            f"{path} -version gave no answer in {_ASKING_S:g} s", remedy="try it by hand"
        ) from error
    finally:
        if asked.returncode is None:
            asked.kill()
            await asyncio.shield(asked.wait())
    return answer.decode(errors="replace")
