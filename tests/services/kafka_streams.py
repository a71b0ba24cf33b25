"""Real Kafka Streams application for tests, of either version, against a running cluster.

One Java process runs it any number of times, since most of a start is the start of Java.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.kafka_node import KAFKA_SCRIPT, KafkaUnavailableError, kafka_environment

_SOURCE = Path(__file__).parent / "kafka" / "StreamsHarness.java"
_STORE_SOURCE = Path(__file__).parent / "kafka" / "StreamsStoreHarness.java"


@dataclass(frozen=True, slots=True)
class RestoredRange:
    """Report of the application's own restore listener about one store.

    Attributes:
        start_offset: first offset that was read, inclusive.
        end_offset: end of the changelog, exclusive.
        record_count: records that were restored.
    """

    start_offset: int
    end_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class TimedRestore:
    """Report of the restore listener of an application with one store, and the time from its start to its end."""

    restored: RestoredRange
    seconds: float


def restore_with_streams(
    bootstrap: str, application_id: str, topic: str, state_dir: Path, *, version: str
) -> TimedRestore:
    """Run the application of ``StreamsStoreHarness.java`` until its store is restored.

    Args:
        bootstrap: of the cluster.
        application_id: the changelog is ``<application id>-store-changelog``.
        topic: input, of as many partitions as the changelog.
        state_dir: ``state.dir`` of the application.
        version: of Kafka Streams.
    """
    command = [str(KAFKA_SCRIPT), "tool", str(_STORE_SOURCE), bootstrap, application_id, topic, str(state_dir)]
    settings = kafka_environment({"KAFKA_VERSION": version, "KAFKA_LOG_LEVEL": "warn"})
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("restored "):
            start, end, count, milliseconds = map(int, line.split()[1:])
            return TimedRestore(RestoredRange(start, end, count), milliseconds / 1000)
    raise AssertionError(f"the application failed: {done.stdout[-1000:]}{done.stderr[-3000:]}")


def require_kafka_streams(version: str) -> None:
    """Fetch the jars of Kafka Streams unless they are there.

    Raises:
        KafkaUnavailableError: no Java, no Maven, or the jars could not be fetched.
    """
    fetched = subprocess.run(
        [str(KAFKA_SCRIPT), "libs", "-Pstreams"],
        env=kafka_environment({"KAFKA_VERSION": version}),
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise KafkaUnavailableError(
            f"Kafka Streams {version} could not be fetched: {(fetched.stderr or fetched.stdout)[-500:]}"
        )


class StreamsApplication:
    """The application of ``StreamsHarness.java``: six stores, one task; a context manager."""

    def __init__(self, bootstrap: str, *, version: str, log: Path) -> None:
        self._command = [str(KAFKA_SCRIPT), "tool", str(_SOURCE), bootstrap]
        self._environment = kafka_environment({"KAFKA_VERSION": version, "KAFKA_LOG_LEVEL": "warn"})
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def run(self, application_id: str, topic: str, state_dir: Path, *, exactly_once: bool) -> dict[str, RestoredRange]:
        """Run an application until it has committed the end of ``topic``; return what it restored, by store."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        guarantee = "exactly_once_v2" if exactly_once else "at_least_once"
        self._process.stdin.write(f"{application_id} {topic} {state_dir} {guarantee}\n")
        self._process.stdin.flush()
        restored: dict[str, RestoredRange] = {}
        for line in self._process.stdout:
            match line.split():
                case ["restored", store, start, end, count]:
                    restored[store] = RestoredRange(int(start), int(end), int(count))
                case ["stopped"]:
                    return restored
                case _:
                    break
        raise AssertionError(f"the application failed: {self._log.read_text(errors='replace')[-3000:]}")
