"""PartitionStatus: the status of one partition for operators. StatusBoard: reads the status of all partitions."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from tierd.control import Leadership, Role
from tierd.errors import TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import TopicPartition, uuid_to_text
from tierd.tiering.copying.copy_state import CopyPhase
from tierd.tiering.copying.intake import Intake
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.partition_log import CopyLag, PartitionLog
from tierd.tiering.removing.expiring.expiration_task import ExpirationState
from tierd.tiering.replicas.replica import Replica, ReplicaTable, RoleTasks
from tierd.tiering.replicas.replica_scanner import ReplicaScanner
from tierd.tiering.supervision import Supervisor, TaskHealth

_WATERMARK_TIMEOUT_S: Final = 2.0  # a disk that hangs must not keep the status of the others back

PartitionState = Literal["copying", "idle", "waiting", "paused", "quarantined", "loading", "following"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Status of one partition at one moment.

    Attributes:
        topic_id: the topic's id in Kafka's 22-character form.
        role: ``unknown`` while the source of leadership has not said; ``deleted`` once it says that the topic is gone.
        leader_epoch: the one it is copied under, None unless led.
        copied_through: the frontier, last offset in the tier; -1 when nothing is, None while that is not known.
        log_start_offset: first offset of the total log, None while it is not known.
        local_log_start_offset: base of the first local segment, None without one.
        state: the state in one word.
        reason: why nothing moves, or what does; empty when there is nothing to say.
        last_error: the error of the latest failed pass; None after a pass that ended well.
        remedy: the next step against ``last_error``; empty without one.
        retry_at_ms: wall clock of the next attempt while quarantined.
        lag: rolled segments that are not in the tier.
        expiration: segments that are to leave the tier and have not left it.
    """

    partition: TopicPartition
    topic_id: str
    directory: str
    role: Literal["leader", "follower", "deleted", "unknown"]
    leader_epoch: int | None
    copied_through: int | None
    high_watermark: int | None
    log_start_offset: int | None
    local_log_start_offset: int | None
    state: PartitionState
    reason: str
    last_error: str | None
    remedy: str
    retry_at_ms: int | None
    lag: CopyLag
    expiration: ExpirationState = field(default_factory=ExpirationState)


def partition_status(
    local: PartitionLog,
    *,
    leadership: Leadership | None,
    tasks: RoleTasks,
    health: TaskHealth,
    paused: bool,
    problem: str,
    log_start_offset: int | None = None,
) -> PartitionStatus:
    """Return the status of a partition, from its log, its tasks and their supervisor.

    Args:
        local: the local side.
        leadership: the latest announcement of the leadership source.
        tasks: the tasks of the role.
        health: the health of the task with the most failures.
        paused: an operator stopped the intake.
        problem: why the directory could not be scanned, or cannot be led; empty without a problem.
        log_start_offset: the log start in the metadata now; None where only a task may know it.
    """
    knowing = tasks.copy or tasks.follow
    known = knowing.state if knowing else None
    role = leadership.role if leadership else None
    segments = local.scan.segments
    state, reason = _state(role, tasks, health, paused=paused, problem=problem)
    return PartitionStatus(
        partition=local.partition.topic_partition,
        topic_id=uuid_to_text(local.partition.topic_id),
        directory=str(local.path),
        role="unknown" if role is None else role.value,
        leader_epoch=leadership.leader_epoch if leadership and role is Role.LEADER else None,
        copied_through=known.copied_through.offset if known and known.copied_through else None,
        high_watermark=known.high_watermark if known else None,
        log_start_offset=known.log_start_offset if log_start_offset is None and known else log_start_offset,
        local_log_start_offset=segments[0].base_offset if segments else None,
        state=state,
        reason=reason,
        last_error=health.last_error or (problem or None),
        remedy=health.remedy,
        retry_at_ms=health.retry_at_ms,
        # A former leader must not go on publishing its lag (remote-tiering 9.2), nor a task that stopped copying.
        lag=local.lag() if role in (None, Role.LEADER) else CopyLag(),
        expiration=tasks.expire.state if tasks.expire else ExpirationState(),
    )


def _state(
    role: Role | None, tasks: RoleTasks, health: TaskHealth, *, paused: bool, problem: str
) -> tuple[PartitionState, str]:
    if problem:
        return "quarantined", problem
    if health.failures:
        return "quarantined", health.last_error or ""
    match role:
        case None:
            return "waiting", "no leader epoch in leader-epoch-checkpoint yet: nothing was ever written"
        case Role.FOLLOWER:
            return "following", "another broker leads it, or leadership.partitions does not name it"
        case Role.DELETED:
            return "idle", "its topic was deleted"
    if tasks.copy is None:
        return "idle", "copies of the topic are switched off; what is in the tier stays until it expires"
    if tasks.copy.state.phase is CopyPhase.STOPPED:
        return "quarantined", tasks.copy.state.reason
    if paused:
        return "paused", "an operator paused it: tierd resume"
    return _WORDS[tasks.copy.state.phase], tasks.copy.state.reason


_WORDS: dict[CopyPhase, PartitionState] = {
    CopyPhase.LOADING: "loading",
    CopyPhase.COPYING: "copying",
    CopyPhase.WAITING: "waiting",
    CopyPhase.IDLE: "idle",
}


class StatusBoard:
    """Reader of the status of all partitions. It keeps no state of its own."""

    def __init__(
        self,
        replicas: ReplicaTable,
        *,
        log_dirs: ReplicaScanner,
        supervisor: Supervisor,
        metadata: RemoteLogMetadataManager,
        intake: Intake,
        log_offsets: LogOffsets,
    ) -> None:
        self._replicas = replicas
        self._log_dirs = log_dirs
        self._supervisor = supervisor
        self._log_offsets = log_offsets
        self._metadata = metadata
        self._intake = intake

    def all(self) -> tuple[PartitionStatus, ...]:
        """Return the status of every partition, by name."""
        observed = self._observed()
        return tuple(
            self._status(replica, observed.health_of(replica), observed.problem_of(replica))
            for replica in sorted(self._replicas.all(), key=_name)
        )

    def loading(self) -> tuple[TopicPartition, ...]:
        """Return the partitions in state ``loading``, by name, without the rest of their status: it is asked often."""
        observed = self._observed()
        found = []
        for replica in self._replicas.all():
            copy = replica.tasks.copy
            if copy is None or copy.state.phase is not CopyPhase.LOADING:
                continue
            health, problem = observed.health_of(replica), observed.problem_of(replica)
            if self._state(replica, health, problem) == "loading":
                found.append(_name(replica))
        return tuple(sorted(found, key=lambda name: (name.topic, name.partition)))

    async def current(self) -> tuple[PartitionStatus, ...]:
        """Return the same as ``all``, with the high watermarks of this moment: a task at rest reads none.

        Where a log dir does not answer soon, the high watermarks are those that its tasks saw last.
        """
        seen: dict[str, int] = {}
        for log_dir in {replica.local.log_dir for replica in self._replicas.all()}:
            with contextlib.suppress(TierError, TimeoutError):
                async with asyncio.timeout(_WATERMARK_TIMEOUT_S):
                    watermarks = await self._log_offsets.high_watermarks(log_dir)
                seen.update((str(log_dir / str(partition)), offset) for partition, offset in watermarks.items())
        return tuple(
            replace(status, high_watermark=seen.get(status.directory, status.high_watermark)) for status in self.all()
        )

    async def current_of(self, replica: Replica) -> PartitionStatus:
        """Return the status of one partition, with its high watermark of this moment, as ``current`` has it."""
        observed = self._observed()
        status = self._status(replica, observed.health_of(replica), observed.problem_of(replica))
        with contextlib.suppress(TierError, TimeoutError):
            async with asyncio.timeout(_WATERMARK_TIMEOUT_S):
                watermarks = await self._log_offsets.high_watermarks(replica.local.log_dir)
            return replace(status, high_watermark=watermarks.get(status.partition, status.high_watermark))
        return status

    def of(self, replica: Replica, health: Sequence[TaskHealth]) -> PartitionStatus:
        """Return the status of one partition whose tasks have this health."""
        return self._status(replica, _worst(health), self._observed().problem_of(replica))

    def _observed(self) -> "_ObservedTasks":
        problems = {state.path: state.problem for state in self._log_dirs.log_dirs() if state.problem}
        failing = {name: health for name, health in self._supervisor.statistics().items() if health.failures}
        return _ObservedTasks(failing, problems)

    def _status(self, replica: Replica, health: TaskHealth, problem: str) -> PartitionStatus:
        return partition_status(
            replica.local,
            leadership=replica.leadership,
            tasks=replica.tasks,
            health=health,
            paused=self._intake.is_paused(_name(replica)),
            problem=problem,
            log_start_offset=self._log_start_offset(replica),
        )

    def _state(self, replica: Replica, health: TaskHealth, problem: str) -> PartitionState:
        role = replica.leadership.role if replica.leadership else None
        paused = self._intake.is_paused(_name(replica))
        return _state(role, replica.tasks, health, paused=paused, problem=problem)[0]

    def _log_start_offset(self, replica: Replica) -> int | None:
        """Return the log start of a led log from the metadata: expiration moves the log start on there first."""
        if replica.tasks.expire is None:
            return None
        try:
            return self._metadata.view(replica.local.partition).log_start_offset
        except TierError:  # not loaded, or deleted as a whole
            return None


_HEALTHY: Final = TaskHealth()  # of thousands of tasks at once


@dataclass(frozen=True, slots=True)
class _ObservedTasks:
    """Tasks that failed last, by name, and log dirs with a problem, both of one moment; mostly there are none."""

    failing: Mapping[str, TaskHealth]
    log_dir_problems: Mapping[Path, str]

    def health_of(self, replica: Replica) -> TaskHealth:
        if not self.failing:
            return _HEALTHY
        return _worst([self.failing.get(task.name, _HEALTHY) for task in replica.tasks.all()])

    def problem_of(self, replica: Replica) -> str:
        if replica.problem or not self.log_dir_problems:
            return replica.problem
        return self.log_dir_problems.get(replica.local.log_dir, "")


def _worst(health: Sequence[TaskHealth]) -> TaskHealth:
    return max(health, key=lambda each: each.failures, default=_HEALTHY)


def _name(replica: Replica) -> TopicPartition:
    return replica.local.directory.topic_partition  # the identity by topic id would be made anew each time
