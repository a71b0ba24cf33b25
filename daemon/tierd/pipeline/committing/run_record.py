"""RunRecord: counts what a run has done so far, for status, metrics and the history of runs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition

_MAX_PROBLEMS: Final = 100  # a broken store fails every group alike


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """Group that stays as it is or was found damaged, and why, in words."""

    partition: TopicIdPartition
    group: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """Results of a run, or of several together; its fields are those of every JSON output about runs.

    Bytes are those of logs, before compression.

    Attributes:
        partitions: partitions with groups that were due; an audit is not counted.
        groups_replaced: groups whose output took the place of the inputs.
        groups_unchanged: groups that the job found to be right as they are.
        groups_failed: groups that the job could not rewrite, or that the leader refused.
        audited_segments: segments that were audited and left as they are; they are in no group.
        audited_bytes: bytes of the audited segments.
        damaged_segments: audited segments with a problem.
        bytes_before: bytes of the inputs of replaced groups.
        bytes_after: bytes of the outputs of replaced groups.
    """

    partitions: int = 0
    groups_replaced: int = 0
    groups_unchanged: int = 0
    groups_failed: int = 0
    audited_segments: int = 0
    audited_bytes: int = 0
    damaged_segments: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Self) -> Self:
        """Return the sum of both, field by field."""
        names = [each.name for each in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """State of a run at one moment.

    Attributes:
        stage: the stage that the job reported last.
        stage_done: part of ``stage_total`` that is done.
        stage_total: size of the stage.
        groups: groups of the whole order; an audited segment is none.
        begun: groups whose output was begun.
        refused: groups that the leader refused.
        failed: groups that the job could not rewrite.
        tally: results so far.
        counts: what the job counted in committed groups, added up, and ``batches_unread`` of unchanged ones too.
        problems: the first hundred refused or failed groups, and damaged segments.
    """

    run_id: UUID
    stage: str
    stage_done: int
    stage_total: int
    groups: int
    begun: int
    refused: int
    failed: int
    tally: RunTally
    counts: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[GroupProblem, ...] = ()

    @property
    def committed(self) -> int:
        """Return the number of outputs that took the place of their inputs."""
        return self.tally.groups_replaced

    @property
    def unchanged(self) -> int:
        """Return the number of groups that the job found to be right as they are."""
        return self.tally.groups_unchanged


class RunRecord:
    """Counts of a run; owned by the leader of the run."""

    def __init__(self, run_id: UUID, *, partitions: int, groups: int) -> None:
        self._run_id = run_id
        self._groups = groups
        self._tally = RunTally(partitions=partitions)
        self._events: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._stage = ("starting", 0, 0)
        self._problems: list[GroupProblem] = []

    def stage(self, stage: str, *, done: int, total: int) -> None:
        """Note that the job is at ``stage``."""
        self._stage = (stage, done, total)

    def begun(self, groups: int) -> None:
        """Count groups whose outputs were begun."""
        self._events["begun"] += groups

    def committed(self, *, bytes_before: int, bytes_after: int, counts: Mapping[str, int]) -> None:
        """Count an output that took the place of its inputs."""
        self._tally += RunTally(groups_replaced=1, bytes_before=bytes_before, bytes_after=bytes_after)
        self._counts.update(counts)

    def unchanged(self, counts: Mapping[str, int]) -> None:
        """Count a group that stays, since it is right as it is."""
        self._tally += RunTally(groups_unchanged=1)
        self._counts.update(counts)

    def refused(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """Count a group that the leader refused."""
        self._events["refused"] += 1
        self._leave(RunTally(groups_failed=1), GroupProblem(partition, group, problem))

    def failed(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """Count a group that the job could not rewrite."""
        self._events["failed"] += 1
        self._leave(RunTally(groups_failed=1), GroupProblem(partition, group, problem))

    def audited(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Count an audited segment that is sound."""
        self._tally += RunTally(audited_segments=1, audited_bytes=metadata.size_bytes)

    def damaged(self, metadata: RemoteLogSegmentMetadata, group: int, problem: str) -> None:
        """Count an audited segment that has a problem."""
        self.audited(metadata)
        partition, name = metadata.segment.topic_id_partition, str(metadata.segment)
        text = problem if name in problem else f"{name}: {problem}"
        advice = f"run tierd verify --deep {partition.topic_partition}"
        self._leave(RunTally(damaged_segments=1), GroupProblem(partition, group, f"{text}; {advice}"))

    def statistics(self) -> RunStatistics:
        """Return the statistics so far."""
        stage, done, total = self._stage
        return RunStatistics(
            run_id=self._run_id,
            stage=stage,
            stage_done=done,
            stage_total=total,
            groups=self._groups,
            begun=self._events["begun"],
            refused=self._events["refused"],
            failed=self._events["failed"],
            tally=self._tally,
            counts=dict(self._counts),
            problems=tuple(self._problems),
        )

    def _leave(self, come_of: RunTally, problem: GroupProblem) -> None:
        self._tally += come_of
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)
