"""PartitionStatus: what an operator is told of one partition."""

from dataclasses import dataclass
from typing import Literal

from tierd.control import Role
from tierd.model import TopicPartition, uuid_to_text
from tierd.tiering.copying.copy_state import CopyPhase
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.local.lag import CopyLag
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.supervision import TaskHealth

PartitionState = Literal["copying", "idle", "waiting", "paused", "quarantined", "loading", "following"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition at this moment.

    Attributes:
        topic_id: in Kafka's 22-character form.
        role: ``leader``, ``follower``, or ``unknown`` while the source of leadership has not said.
        leader_epoch: the one it is copied under, None unless led.
        copied_through: the frontier, last offset in the tier; -1 when nothing is, None while that is not known.
        log_start_offset: first offset of both tiers, None while it is not known.
        local_log_start_offset: base of the first local segment, None without one.
        state: in one word.
        reason: why nothing moves, or what does; empty when there is nothing to say.
        last_error: of the latest failed pass, None after a pass that ended well.
        retry_at_ms: wall clock of the next attempt while quarantined.
        lag: rolled segments that the tier does not hold.
    """

    partition: TopicPartition
    topic_id: str
    directory: str
    role: Literal["leader", "follower", "unknown"]
    leader_epoch: int | None
    copied_through: int | None
    high_watermark: int | None
    log_start_offset: int | None
    local_log_start_offset: int | None
    state: PartitionState
    reason: str
    last_error: str | None
    retry_at_ms: int | None
    lag: CopyLag


def partition_status(
    local: PartitionLog, *, role: Role | None, task: CopyTask | None, health: TaskHealth, paused: bool, problem: str
) -> PartitionStatus:
    """Put together what the log, the task and its supervisor say.

    Args:
        local: the local side.
        role: as the source of leadership said last.
        task: None unless led.
        health: of the task.
        paused: whether an operator stopped the intake.
        problem: why the directory could not be looked at, or cannot be led; empty when all is well.
    """
    copy = task.state if task else None
    segments = local.scan.segments
    state, reason = _state(task, health, paused=paused, problem=problem, role=role)
    return PartitionStatus(
        partition=local.partition.topic_partition,
        topic_id=uuid_to_text(local.partition.topic_id),
        directory=str(local.path),
        role="unknown" if role is None else role.value,
        leader_epoch=task.leader_epoch if task else None,
        copied_through=copy.copied_through.offset if copy and copy.copied_through else None,
        high_watermark=copy.high_watermark if copy else None,
        log_start_offset=copy.log_start_offset if copy else None,
        local_log_start_offset=segments[0].base_offset if segments else None,
        state=state,
        reason=reason,
        last_error=health.last_error or (problem or None),
        retry_at_ms=health.retry_at_ms,
        # Whoever lost the leadership must not go on publishing its lag (remote-tiering 9.2).
        lag=CopyLag() if role is Role.FOLLOWER else local.lag(),
    )


def _state(
    task: CopyTask | None, health: TaskHealth, *, paused: bool, problem: str, role: Role | None
) -> tuple[PartitionState, str]:
    if problem:
        return "quarantined", problem
    if task is None:
        if role is Role.FOLLOWER:
            return "following", "another broker leads it, or leadership.partitions does not name it"
        return "waiting", "no leader epoch in leader-epoch-checkpoint yet: nothing was ever written"
    if health.failures:
        return "quarantined", health.last_error or ""
    if task.state.phase is CopyPhase.STOPPED:
        return "quarantined", task.state.reason
    if paused:
        return "paused", "an operator paused it: tierd resume"
    words: dict[CopyPhase, PartitionState] = {
        CopyPhase.LOADING: "loading",
        CopyPhase.COPYING: "copying",
        CopyPhase.WAITING: "waiting",
        CopyPhase.IDLE: "idle",
    }
    return words[task.state.phase], task.state.reason
