"""Broker with two log dirs, a tierd beside it, a bucket behind a path that can be spoiled."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.scenarios.installation import Installation, Settings
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_cluster import KafkaBroker
from tests.services.waiting import wait_until
from tests.soak.consumer_oracle import ConsumerOracle, Partition
from tests.soak.lost_markers import lost_markers
from tests.soak.topics import COMPACTED, DELETED_ONLY, SoakTraffic
from tierd.log import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from tierd.model import TopicPartition
from tierd.tiering.removing.log_start_keeper import INTERVAL_S as LOG_START_INTERVAL_S

READY_DEADLINE_S = 90.0
SETTLE_DEADLINE_S = 180.0
ALL_PARTITIONS: Sequence[Partition] = [*(each for topic in DELETED_ONLY for each in topic.partitions), (COMPACTED, 0)]


class SoakLab:
    """Broker, daemon, stores and journals of a soak; a context manager in which all of them run.

    Attributes:
        log_starts: the offset of the last DeleteRecords request of each partition.
    """

    def __init__(self, root: Path, broker: KafkaBroker, s3: SpoilableS3, warm: WarmTierd, *, seed: int) -> None:
        self.root = root
        self.broker = broker
        self.s3 = s3
        self.warm = warm
        self.traffic = SoakTraffic(broker, seed=seed)
        self.oracle = ConsumerOracle(broker)
        self.log_starts: dict[Partition, int] = {}
        self.tierd = self.installation("tierd", broker.log_dirs)
        self.daemon = self.tierd.daemon()
        self._stack = ExitStack()

    def installation(self, name: str, log_dirs: Sequence[Path]) -> Installation:
        """Return an installation over the soak's bucket, with a state dir and metadata of its own."""
        return Installation(
            self.root / name, log_dirs, remote=self.s3.remote(), settings=self._settings(), warm=self.warm
        )

    def _settings(self) -> Settings:
        kafka = {"bootstrap_servers": [self.broker.address(1)], "refresh": "500ms", "request_timeout": "20s"}
        return {
            "leadership": {"source": "kafka", "kafka": kafka} if self.has_kafka_connection else {"source": "static"},
            "topics": {
                "exclude": ["__.*"],
                "defaults": {"segment_bytes": "128KiB", "delete_retention": "2s", "min_cleanable_dirty_ratio": 0.05},
                "overrides": [
                    {"match": "recreated", "delete_with_topic": True},
                    {"match": COMPACTED, "cleanup_policy": "compact"},
                ],
            },
            "copy": {"dangling_grace": "2s"},
            "expire": {"interval": "1s", "grace": "20s"},
            "pipeline": {"driver_memory": "512MiB", "audit_bytes": 0, "local_dir": str(self.root / "spark")},
        }

    @property
    def has_kafka_connection(self) -> bool:
        """Return True if the daemon asks the broker for leaders: with Kafka 4; beside 3.9 it reads files only."""
        return not self.broker.version.startswith("3.")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._kill_daemon)
            self.traffic.create_topics()
            self.daemon.start()
            self.daemon.wait_ready(deadline_s=READY_DEADLINE_S)
            stack.enter_context(self.traffic)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def restart_daemon(self) -> None:
        """SIGKILL the daemon and start it again."""
        self._kill_daemon()
        self.daemon.start()
        self.daemon.wait_ready(deadline_s=READY_DEADLINE_S)

    def restart_broker(self) -> None:
        """SIGKILL the broker and start it again."""
        self.broker.kill()
        self.broker.start()
        self.wait_led()

    def doubt_lost_markers(self) -> None:
        """Take transactions for which the broker wrote no abort marker for ones of unknown outcome."""
        for lost in lost_markers(self.broker.node_dir(1)):
            if lost.partition == (COMPACTED, 0):
                self.traffic.keyed.doubt_abort_at(lost.at_ms)
            else:
                self.traffic.records.journal.doubt_abort_at(*lost.partition, lost.at_ms)

    def wait_led(self) -> None:
        """Wait until the broker leads every partition."""
        for topic, partition in ALL_PARTITIONS:
            wait_until(
                lambda t=topic, p=partition: self.broker.leader(t, p) == 1,  # type: ignore[misc]  # defaults bind the loop's values
                what=f"the broker to lead {topic}-{partition}",
                deadline_s=READY_DEADLINE_S,
                interval_s=0.2,
            )

    def wait_copied(self, partitions: Sequence[Partition]) -> None:
        """Wait until the tier has every segment that the broker has rolled by now."""
        for topic, partition in partitions:
            rolled = self.broker.base_offsets(topic, partition)[-1] - 1
            self.daemon.wait_copied({f"{topic}-{partition}": rolled}, deadline_s=SETTLE_DEADLINE_S)

    def wait_log_start_checkpointed(self, partition: Partition, offset: int) -> None:
        """Wait until the broker has a log start on disk: a broker killed before loses the request.

        The checkpoint has no entry for a log that begins with its first segment.
        """
        directory = self.broker.partition_dir(*partition)
        assert directory is not None, f"{partition} has no directory"
        checkpoint = directory.parent / LOG_START_OFFSET_CHECKPOINT

        def is_on_disk() -> bool:
            written = read_offset_checkpoint(checkpoint).get(TopicPartition(*partition), 0)
            return max(written, self.broker.base_offsets(*partition)[0]) >= offset

        wait_until(
            is_on_disk,
            what=f"log start {offset} of {partition} in {checkpoint}",
            deadline_s=READY_DEADLINE_S,
            interval_s=0.2,
        )

    def is_obeyed(self, partition: Partition, offset: int) -> bool:
        """Wait until the tier begins at ``offset``; return False if the daemon is in doubt, and keeps the records.

        The broker's files show a request until its retention has passed the offset, or a new leadership begins. What
        they show for a shorter time than the daemon's minute may be lost (decision 21).
        """
        name = f"{partition[0]}-{partition[1]}"
        doubt = f'"event": "log_start_in_doubt", "partition": "{name}", "log_start_offset": {offset},'

        def is_known() -> bool:
            return self._begins_at(name, offset) or doubt in self.daemon.log_file.read_text(errors="replace")

        self.daemon.wait_until(is_known, what=f"{name} to begin at {offset}", deadline_s=READY_DEADLINE_S)
        return self._begins_at(name, offset)

    def _begins_at(self, name: str, offset: int) -> bool:
        found = self.daemon.partition(name)
        return found is not None and (found["log_start_offset"] or 0) >= offset

    def wait_log_starts_recorded(self) -> None:
        """Wait until the bucket has the log starts, so that a rebuild knows them.

        The daemon writes each at most once in five minutes (decision 24).
        """
        self.daemon.wait_until(
            lambda: not self._unrecorded_log_starts(),
            what=f"the bucket to have the log starts {self.log_starts}",
            deadline_s=LOG_START_INTERVAL_S + SETTLE_DEADLINE_S,
        )

    def _unrecorded_log_starts(self) -> list[Partition]:
        lines = self.daemon.log_file.read_text(errors="replace").splitlines()
        recorded = [json.loads(line) for line in lines if '"event": "log_start_recorded"' in line]
        highest: dict[str, int] = {}
        for each in recorded:
            highest[each["partition"]] = max(each["log_start_offset"], highest.get(each["partition"], 0))
        return [each for each, start in self.log_starts.items() if highest.get(f"{each[0]}-{each[1]}", 0) < start]

    def committed_end(self, partition: Partition) -> int:
        """Return the high watermark of a partition, exclusive."""
        return self.broker.end_offset(*partition)

    def _kill_daemon(self) -> None:
        if self.daemon.is_running:
            self.daemon.kill()
