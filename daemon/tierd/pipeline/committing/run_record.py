"""RunRecord: what a run has done so far, for status, metrics and the history of runs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
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
class RunStatistics:
    """A frozen look at a run.

    Attributes:
        stage: what the job said last that it does; with how much of how much.
        groups: of the whole order; an audited segment is none.
        begun: groups whose output was begun.
        committed: outputs that took the place of their inputs.
        unchanged: groups that the job found to be right as they are.
        refused: what the leader did not let happen.
        failed: groups that the job could not rewrite.
        audited: segments that were looked at and left as they are.
        audited_bytes: of their logs.
        damaged: those of them with which something is wrong.
        bytes_before: of the inputs of committed groups.
        bytes_after: of their outputs.
        counts: what the job counted in committed groups, added up.
        problems: the first hundred refused or failed groups, and damaged segments.
    """

    run_id: UUID
    stage: str
    stage_done: int
    stage_total: int
    groups: int
    begun: int
    committed: int
    unchanged: int
    refused: int
    failed: int
    audited: int = 0
    audited_bytes: int = 0
    damaged: int = 0
    bytes_before: int
    bytes_after: int
    counts: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[GroupProblem, ...] = ()


class RunRecord:
    """Counts; owned by the leader of the run."""

    def __init__(self, run_id: UUID, *, groups: int) -> None:
        self._run_id = run_id
        self._groups = groups
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
        self._events.update(committed=1, bytes_before=bytes_before, bytes_after=bytes_after)
        self._counts.update(counts)

    def unchanged(self) -> None:
        """A group stays, and is right as it is."""
        self._events["unchanged"] += 1

    def refused(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """The leader did not let a group happen."""
        self._leave("refused", partition, group, problem)

    def failed(self, partition: TopicIdPartition, group: int, problem: str) -> None:
        """The job could not rewrite a group."""
        self._leave("failed", partition, group, problem)

    def audited(self, metadata: RemoteLogSegmentMetadata) -> None:
        """A segment was looked at, and is sound."""
        self._events.update(audited=1, audited_bytes=metadata.size_bytes)

    def damaged(self, metadata: RemoteLogSegmentMetadata, group: int, problem: str) -> None:
        """A segment was looked at, and something is wrong with it."""
        self.audited(metadata)
        partition, name = metadata.segment.topic_id_partition, str(metadata.segment)
        said = problem if name in problem else f"{name}: {problem}"
        self._leave("damaged", partition, group, f"{said}; run tierd verify --deep {partition.topic_partition}")

    def statistics(self) -> RunStatistics:
        """What happened so far."""
        stage, done, total = self._stage
        events = self._events
        return RunStatistics(
            run_id=self._run_id,
            stage=stage,
            stage_done=done,
            stage_total=total,
            groups=self._groups,
            begun=events["begun"],
            committed=events["committed"],
            unchanged=events["unchanged"],
            refused=events["refused"],
            failed=events["failed"],
            audited=events["audited"],
            audited_bytes=events["audited_bytes"],
            damaged=events["damaged"],
            bytes_before=events["bytes_before"],
            bytes_after=events["bytes_after"],
            counts=dict(self._counts),
            problems=tuple(self._problems),
        )

    def _leave(self, event: str, partition: TopicIdPartition, group: int, problem: str) -> None:
        self._events[event] += 1
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(GroupProblem(partition, group, problem))
