"""``tierd copy``: one pass over every partition, or over named partitions, without a daemon."""

from collections.abc import Collection, Iterable

from tierd.app.engine.compose import compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.errors import LogDirOfflineError, LogError
from tierd.model import TopicPartition
from tierd.tiering import CopyOutcome, LogDirState, PartitionStatus, PassiveSupervisor


async def copy_once(deployment: Deployment, partitions: Collection[TopicPartition] | None) -> tuple[CopyOutcome, ...]:
    """Copy what is due and return the outcome of each partition; None means all that this broker leads.

    Raises:
        TierError: the pass could not begin: state dir in use, store unreachable, tier of another metadata store. Or a
            part was left out, although the rest was copied: the cluster never answered, or a log dir is offline.
    """
    async with owned_state_dir(deployment.state_dir), compose(deployment) as engine:
        await engine.store.own()
        manager = engine.new_tiering(PassiveSupervisor()).manager
        async with engine.control.heard():
            outcomes = await manager.copy_once(partitions)
            engine.control.require_heard()
        tried = {outcome.partition for outcome in outcomes}
        left_out = [
            _never_tried(status)
            for status in manager.status()
            if status.state == "quarantined"
            and status.partition not in tried
            and (partitions is None or status.partition in partitions)
        ]
        _require_online(manager.log_dirs())
        return (*outcomes, *left_out)


def _never_tried(status: PartitionStatus) -> CopyOutcome:
    """Return the outcome of a partition without a task: its log cannot be led."""
    problem = LogError(status.last_error or status.reason, remedy=f"run tierd inspect {status.directory}")
    return CopyOutcome(status.partition, status, problem)


def _require_online(log_dirs: Iterable[LogDirState]) -> None:
    for log_dir in log_dirs:
        if log_dir.problem:
            raise LogDirOfflineError(log_dir.problem, remedy="mount it, or grant this user read permission")
