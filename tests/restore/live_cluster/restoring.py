"""Restore of one topic from a tier into a real broker, as a process of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.restore.log_dir.lab import Lab, closed, new_log, write_segments
from tierd.control import NewTopic
from tierd.model import RemoteLogSegmentMetadata, TopicPartition
from tierd.restore.live_cluster.offset_map import MappedRange, read_offset_map
from tierd.restore.live_cluster.restore_progress import OFFSET_MAP_FILE, RestoreProgress
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.topic_restore import PartitionOutcome, RestoredTopic, TopicRestore
from tierd.restore.live_cluster.topic_settings import topic_settings
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode
from tierd.restore.plan.tombstone_age import DELETE_RETENTION_MS

SOURCE = TopicPartition("orders", 0)
BEGUN = 3  # lines of a journal: the job, the creation of the topic, the begin of the partition


@dataclass
class Restoring:
    """Restore of one topic from a tier of its own into a topic of its own."""

    lab: Lab
    target: TargetCluster
    directory: Path
    name: str

    async def run(
        self,
        plan: PartitionPlan,
        *,
        config: Mapping[str, str] | None = None,
        may_exist: bool = False,
        holds_retention: bool = False,
        delete_retention_ms: int = DELETE_RETENTION_MS,
    ) -> PartitionOutcome:
        """Run the restore to its end, as a process of its own."""
        wanted = {"retention.ms": "-1"} | dict(config or {})
        settings = topic_settings(wanted, holds_retention=holds_retention)
        topic = RestoredTopic(
            source="orders",
            new=NewTopic(self.name, 1, 1, settings.at_creation),
            settings=settings,
            plans=[plan],
            delete_retention_ms=delete_retention_ms,
            may_exist=may_exist,
        )
        with self.progress() as progress:
            restore = TopicRestore(self.target, self.lab.storage, progress, on_progress=lambda _: None)
            (outcome,) = await restore.run([topic])
            return outcome

    def progress(self) -> RestoreProgress:
        """Open the journal and the offset map."""
        return RestoreProgress.open(self.directory, {"kind": "test"}, source_cluster="old", target_cluster="new")

    @property
    def journal(self) -> Path:
        """Return the file of the journal."""
        return self.directory / "journal.jsonl"

    def lose_steps(self, lines: int = BEGUN) -> None:
        """Leave the journal as a run leaves it that is killed before its next step."""
        self.journal.write_text("".join(self.journal.read_text().splitlines(keepends=True)[:lines]))

    def begin_earlier(self, *, hours: int) -> None:
        """Let the journal say that the partition was begun earlier."""
        lines = self.journal.read_text().splitlines()
        begun = json.loads(lines[BEGUN - 1])
        begun["at_ms"] -= hours * 3_600_000
        lines[BEGUN - 1] = json.dumps(begun, separators=(",", ":"))
        self.journal.write_text("\n".join(lines) + "\n")

    def ranges(self) -> list[MappedRange]:
        """Return the offset map."""
        found = read_offset_map(self.directory / OFFSET_MAP_FILE, target_cluster="new")
        return found[SOURCE].ranges if SOURCE in found else []


async def copied(restoring: Restoring, tmp_path: Path, segments: int = 3) -> list[RemoteLogSegmentMetadata]:
    """Copy a log of 20 records a segment into the tier."""
    log = new_log(tmp_path / "source")
    write_segments(log, segments)
    return await restoring.lab.copy(closed(log))


def plan_of(
    restoring: Restoring, segments: list[RemoteLogSegmentMetadata], *, end_offset: int | None = None
) -> PartitionPlan:
    return restoring.lab.plan(segments, mode=RestoreMode.IMPORT, end_offset=end_offset)
