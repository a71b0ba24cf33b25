"""Three hosts: a stock broker with tierd in tail mode, and two standbys. The first host is lost, and comes back."""

import os
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.scenarios.installation import Installation, Settings
from tests.scenarios.lost_disks import (
    CLUSTER_ID,
    ONE_OF_SEVERAL,
    PAGE_CLUSTER_ID,
    PAGE_LOG_DIR,
    ends_of,
    run_printed,
    wipe,
)
from tests.scenarios.push.loss_traffic import TOPICS, PartitionName
from tests.scenarios.push_hosts import PushHosts, copies_of
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_cluster import KafkaBroker

LEADER, STANDBYS = 1, (2, 3)
PARTITIONS: Final = [(topic.name, partition) for topic in TOPICS for partition in range(topic.partitions)]
PROPERTIES: Final = {"log.cleaner.backoff.ms": "200", "replica.high.watermark.checkpoint.interval.ms": "500"}
_PROTECTED_S: Final = 120.0
_OPTIONS: Final = ("--hold-retention", "--from-bucket", "--accept-holes")  # records were deleted before their copy
_DAMAGED: Final = 1  # the cut may have left a manifest whose log was being deleted; all else is rebuilt


class LossLab:
    """The hosts; a context manager in which the standbys run, and the leader's daemon between ``begin`` and a loss."""

    def __init__(self, root: Path, broker: KafkaBroker, warm: WarmTierd) -> None:
        self.broker = broker
        self._root = root
        self._warm = warm
        self._hosts = PushHosts(1 + len(STANDBYS))
        self._stack = ExitStack()
        self._standbys = [
            Installation(
                root / f"standby-{node}",
                [],
                settings=self._hosts.standby(root / f"standby-{node}", CLUSTER_ID, node),
                warm=warm,
            )
            for node in STANDBYS
        ]
        self._make_leader()

    def __enter__(self) -> Self:
        for topic in TOPICS:
            self.broker.create_topic(
                topic.name, partitions=topic.partitions, segment_bytes=topic.segment_bytes, configs=topic.configs
            )
        for standby in self._standbys:
            self._stack.enter_context(standby.daemon())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.daemon.is_running:
            self.daemon.kill()
        self._stack.__exit__(kind, error, trace)

    @property
    def copies(self) -> list[Path]:
        """Return the log dirs of the standbys' copies."""
        return [copies_of(standby) for standby in self._standbys]

    def begin(self) -> None:
        """Start the leader's daemon; return when both standbys have what the broker has, and get what it writes."""
        self.daemon.start()
        self.daemon.wait_ready()
        ends = {each: self.broker.end_offset(*each) for each in PARTITIONS}
        self.daemon.wait_until(
            lambda: all(self.copied_ends(copies)[each] >= end for copies in self.copies for each, end in ends.items()),
            what=f"both standbys to have {ends}",
            deadline_s=_PROTECTED_S,
        )
        self.daemon.wait_until(self._has_sessions, what="the sessions of both standbys", deadline_s=_PROTECTED_S)

    def wait_tiered(self) -> None:
        """Wait until the tier has records of every partition that no cleaner rewrites all the time."""
        self.daemon.wait_copied({name: 0 for topic in TOPICS[:-1] for name in topic.partition_names})

    def lose_host(self) -> float:
        """End broker and daemon as a power cut does, and remove their directories; return the time of the cut."""
        cut_s = time.monotonic()
        for pid in (self.daemon.pid, self.broker.pid(1)):
            os.kill(pid, signal.SIGKILL)
        self.daemon.kill()
        self.broker.kill(1)
        (log_dir,) = self.broker.log_dirs
        wipe(log_dir)
        shutil.rmtree(self._leader.root)
        self._make_leader()
        return cut_s

    def restore(self) -> dict[str, int]:
        """Restore from the tier and the standbys by the commands of the page; return the ends of the partitions."""
        (log_dir,) = self.broker.log_dirs
        places = {PAGE_LOG_DIR: str(log_dir), PAGE_CLUSTER_ID: CLUSTER_ID, "replica": "last-copy"}
        standbys = [word for copies in self.copies for word in ("--standby", str(copies))]
        answer = run_printed(self._leader, ONE_OF_SEVERAL, "log-dir", places, *_OPTIONS, *standbys)
        self.answer: dict[str, Any] = answer
        rebuilt = self._leader.ask("rebuild-metadata")
        assert rebuilt.exit_code in (0, _DAMAGED), rebuilt.output
        return ends_of(answer)

    def copied_ends(self, copies: Path) -> dict[PartitionName, int]:
        """Return the log ends of the copies in one standby; 0 of a copy that is not there."""
        return {each: copied_end(copies / f"{each[0]}-{each[1]}") for each in PARTITIONS}

    def _has_sessions(self) -> bool:
        sent = self.daemon.status()["push"]["leader"]["partitions"]
        modes = {each["partition"]: [standby["mode"] for standby in each["standbys"]] for each in sent}
        return all(modes.get(f"{topic}-{number}") == ["push"] * len(STANDBYS) for topic, number in PARTITIONS)

    def _make_leader(self) -> None:
        """Install tierd beside the broker, with an empty state dir."""
        settings: Settings = {
            "catalogue": {"interval": "1s"},
            "leadership": {"kafka": {"bootstrap_servers": self.broker.bootstrap.split(",")}},
            **self._hosts.leader(LEADER, topics=[".*"]),
        }
        tier = {"backend": "filesystem", "filesystem": {"path": str(self._root / "tier")}}
        self._leader = Installation(
            self._root / "leader", self.broker.log_dirs, remote=tier, settings=settings, warm=self._warm
        )
        self.daemon = self._leader.daemon()


def copied_end(directory: Path) -> int:
    """Return the offset behind the last whole batch of a partition directory; 0 without one."""
    for file in sorted(directory.glob("*.log"), reverse=True):
        data, at, end = file.read_bytes(), 0, int(file.stem)
        while (size := int.from_bytes(data[at + 8 : at + 12], "big")) > 0 and at + 12 + size <= len(data):
            end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
            at += 12 + size
        return end
    return 0
