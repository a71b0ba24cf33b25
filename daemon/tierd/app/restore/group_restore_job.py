"""GroupRestoreJob: positions of consumer groups from the catalogue, planned for a live cluster, and set there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.app.engine.deployment import Deployment
from tierd.clock import SystemClock
from tierd.config import KafkaConnectionSettings
from tierd.errors import ConfigError, ConfigFault, RefusedError
from tierd.remote import ObjectKeyFactory, open_key_ring
from tierd.restore import (
    CatalogueStorage,
    GroupOutcome,
    PlannedPosition,
    TargetCluster,
    log_bounds,
    open_target,
    plan_positions,
    positions_at,
    read_offset_map,
    read_positions_at,
    set_positions,
    targets_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRestoreRequest:
    """Request to set positions of groups in a live cluster.

    Attributes:
        groups: which; none means all that the catalogue has.
        to: the target cluster.
        at_ms: moment of the positions; None for the newest.
        offset_map: file that ``tierd restore topic`` wrote; None where offsets were kept.
        cluster_id: of the tier; None takes the one of the configuration or of the log dirs.
        patience_s: how long tierd waits for the target.
    """

    groups: tuple[str, ...]
    to: KafkaConnectionSettings
    at_ms: int | None = None
    offset_map: Path | None = None
    cluster_id: str | None = None
    patience_s: float = 60.0


class GroupRestoreJob:
    """Positions to set, and the way to set them.

    Attributes:
        planned: by group and partition.
        taken_ms: moment of the positions of each node.
        problems: objects of the catalogue that could not be used.
    """

    def __init__(
        self,
        target: TargetCluster,
        planned: Sequence[PlannedPosition],
        *,
        taken_ms: Mapping[int, int],
        problems: Sequence[str],
    ) -> None:
        self.planned = planned
        self.taken_ms = taken_ms
        self.problems = problems
        self._target = target

    async def run(self) -> list[GroupOutcome]:
        """Set the positions.

        Raises:
            RefusedError: a group has members; nothing was set.
            KafkaError: the target does not answer.
        """
        return await set_positions(self._target, self.planned)


@contextlib.asynccontextmanager
async def group_restore_job(deployment: Deployment, request: GroupRestoreRequest) -> AsyncIterator[GroupRestoreJob]:
    """Read the catalogue and ask the target for its offsets; nothing is written.

    Raises:
        ConfigError: the cluster of the tier is not known.
        RefusedError: the catalogue has no positions of a group, or the map is that of another cluster.
        KafkaError: the target does not answer.
        TierError: the store or the map cannot be read.
    """
    clock = SystemClock()
    cluster_id = request.cluster_id or await deployment.known_cluster_id()
    if cluster_id is None:
        what = "cluster_id is not set, and no log dir names it: set cluster_id, or give --cluster-id"
        raise ConfigError([ConfigFault(deployment.config_file, 0, 0, what)])
    async with deployment.object_store(clock=clock) as store:
        keys = ObjectKeyFactory(deployment.key_prefix, cluster_id)
        found = await read_positions_at(
            CatalogueStorage(store, keys, open_key_ring(deployment.encryption)), request.at_ms
        )
    cut = positions_at(found.positions)
    missing = sorted(set(request.groups) - set(cut.groups))
    if missing or not cut.groups:
        raise RefusedError(
            f"the catalogue has no committed offset of {', '.join(missing) or 'any group'} at that moment",
            remedy="tierd groups lists what it has",
        )
    groups = {group: cut.groups[group] for group in request.groups or cut.groups}
    async with open_target(request.to, clock=clock, patience_s=request.patience_s) as target:
        offset_map = None
        if request.offset_map is not None:
            path = request.offset_map
            offset_map = await asyncio.to_thread(lambda: read_offset_map(path, target_cluster=target.cluster_id))
        bounds = await log_bounds(target, targets_of(groups, offset_map))
        planned = plan_positions(groups, offset_map, bounds)
        yield GroupRestoreJob(target, planned, taken_ms=cut.taken_ms, problems=found.problems)
