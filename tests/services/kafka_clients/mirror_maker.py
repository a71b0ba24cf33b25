"""MirrorMaker 2 as a process of its own, which copies topics of a read-only cluster into a live one.

Its command is the one that docs/read-endpoint.md prints, in a folder that has the settings that the page prints, with
other addresses and topics, and short intervals. Kafka's script is not in the jars: a script of its name stands for it.
"""

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.scenarios.endpoint_page import block
from tests.services.kafka_clients.partitions import Counts
from tests.services.kafka_clients.programs import installed_jars
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_producer import CLIENT_DEADLINE_S
from tests.services.waiting import wait_until

JARS: Final = "mirror-maker"
_SCRIPT: Final = "connect-mirror-maker.sh"
_JAVA: Final = (
    *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
_QUICK: Final = {
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "offset.flush.interval.ms": "500",
}
_SMALL: Final = dict.fromkeys(
    (
        "replication.factor",
        "heartbeats.topic.replication.factor",
        "checkpoints.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    ),
    "1",
)


def printed_settings() -> dict[str, str]:
    """Return the settings that the page prints."""
    pairs = (line.partition("=") for line in block("MirrorMaker 2", "properties").splitlines() if line)
    return {name: value for name, _, value in pairs}


def printed_command() -> list[str]:
    """Return the words of the command that the page prints."""
    return shlex.split(block("MirrorMaker 2", "bash"))


class MirrorMaker:
    """Copier from ``source`` into ``target``, both addresses of clusters; a context manager.

    A topic has the name ``tier.<topic>`` in the target, and the same partitions.
    """

    def __init__(self, folder: Path, source: str, target: str, topics: Sequence[str], *, committed: bool) -> None:
        """Write the settings into ``folder``, where the log goes too.

        Raises:
            KafkaUnavailableError: MirrorMaker is not installed on this machine.
        """
        self._folder = folder
        self._log = folder / "mm2.log"
        self._process: subprocess.Popen[bytes] | None = None
        java = shlex.join([*_JAVA, "-cp", ":".join(str(jar.absolute()) for jar in installed_jars(JARS)), _MAIN])
        (folder / _SCRIPT).write_text(f'#!/bin/sh\nexec {java} "$@"\n')
        (folder / _SCRIPT).chmod(0o755)
        settings = {
            **printed_settings(),
            "tier.bootstrap.servers": source,
            "live.bootstrap.servers": target,
            "tier->live.topics": ",".join(topics),
            "tier.consumer.isolation.level": "read_committed" if committed else "read_uncommitted",
            "plugin.discovery": "service_load",
            **_QUICK,
            **_SMALL,
        }
        (folder / "mm2.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *printed_command()],
                cwd=self._folder,
                env={**os.environ, "PATH": f"{self._folder}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "it was entered"
        self._process.kill()
        self._process.wait()

    def wait_copied(self, counts: Counts, target: KafkaCluster) -> None:
        """Wait until each partition has at least so many records in the target."""

        def copied() -> bool:
            assert self._process is not None, "it was entered"
            assert self._process.poll() is None, f"MirrorMaker has ended: {self._tail()}"
            if any(target.partition_dir(f"tier.{topic}", number) is None for topic, number in counts):
                return False
            return all(target.end_offset(f"tier.{topic}", number) >= count for (topic, number), count in counts.items())

        wait_until(copied, what="MirrorMaker", deadline_s=CLIENT_DEADLINE_S, last_seen=self._tail, interval_s=0.2)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
