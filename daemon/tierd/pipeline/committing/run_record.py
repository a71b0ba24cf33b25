"""RunRecord: what a run has done so far, for status, metrics and the history of runs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition

_MAX_PROBLEMS: Final = 100  # a broken store fails every group alike


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """A group that stays as it is, and why, in words."""

    partition: TopicIdPartition
    group: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """Results of a run, or of several together; its fields are those of every JSON output about runs.

    Bytes are those of logs, before compression.

    Attributes:
        partitions: that had something due; an audit is due for none.
        groups_replaced: whose output took the place of its inputs.
        groups_unchanged: that the job found to be right as they are.
        groups_failed: that the job could not rewrite, or the leader did not let happen.
        audited_segments: looked at and left as they are, with ``audited_bytes``; they are in no group.
        damaged_segments: those of them with which something is wrong.
        bytes_before: of the inputs of replaced groups.
        bytes_after: of their outputs.
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
        """Both together."""
        names = [each.name for each in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """A frozen look at a run.

    Attributes:
        stage: what the job said last that it does; with how much of how much.
        groups: of the whole order; an audited segment is none.
        begun: groups whose output was begun.
        refused: what the leader did not let happen.
        failed: groups that the job could not rewrite.
        tally: what came of it so far.
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
        """Outputs that took the place of their inputs."""
        return self.tally.groups_replaced

    @property
    def unchanged(self) -> int:
        """Groups that the job found to be right as they are."""
        return self.tally.groups_unchanged


class RunRecord:
    """Counts; owned by the leader of the run."""

    def __init__(self, run_id: UUID, *, partitions: int, groups: int) -> None:
        self._run_id = run_id
        self._groups = groups
        self._tally = RunTally(partitions=partitions)
        self._events: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._stage = ("starting", 0, 0)
        self._problems: list[GroupProblem] = []

    def stage(self, stage: str, *, done: int, total: int) -> None:
        """The job is at ``stage``."""
        self._stage = (stage, done, total)

    def begun(self, groups: int) -> None:
        """So many outputs were begun."""
        self._events["begun"] += groups

    def committed(self, *, bytes_before: int, bytes_after: int, counts: Mapping[str, int]) -> None:
        """An output took the place of its inputs."""
        self._tally += RunTally(groups_replaced=1, bytes_before=bytes_before, bytes_after=bytes_after)
        self._counts.update(counts)

    def unchanged(self, counts: Mapping[str, int]) -> None:
        """A group stays, and is right as it is."""
        self._tally += RunTally(groups_unchanged=1)
        self._counts.update(counts)

    def refused(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """The leader did not let a group happen."""
        self._events["refused"] += 1
        self._leave(RunTally(groups_failed=1), GroupProblem(partition, group, problem))

    def failed(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """The job could not rewrite a group."""
        self._events["failed"] += 1
        self._leave(RunTally(groups_failed=1), GroupProblem(partition, group, problem))

    def audited(self, metadata: RemoteLogSegmentMetadata) -> None:
        """A segment was looked at, and is sound."""
        self._tally += RunTally(audited_segments=1, audited_bytes=metadata.size_bytes)

    def damaged(self, metadata: RemoteLogSegmentMetadata, group: int, problem: str) -> None:
        """A segment was looked at, and something is wrong with it."""
        self.audited(metadata)
        partition, name = metadata.segment.topic_id_partition, str(metadata.segment)
        said = problem if name in problem else f"{name}: {problem}"
        advice = f"run tierd verify --deep {partition.topic_partition}"
        self._leave(RunTally(damaged_segments=1), GroupProblem(partition, group, f"{said}; {advice}"))

    def statistics(self) -> RunStatistics:
        """Return the counts so far."""
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
