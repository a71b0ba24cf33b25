"""Composition of ``tierd groups``: positions of the catalogue, from the bucket alone. A daemon may run meanwhile."""

from dataclasses import dataclass

from tierd.app.engine.deployment import Deployment
from tierd.clock import SystemClock
from tierd.errors import ConfigError, ConfigFault, TierError, TierErrorCode
from tierd.model import TopicPartition
from tierd.remote import ObjectKeyFactory, open_key_ring
from tierd.restore import CatalogueStorage, PositionsAt, positions_at, read_positions_at


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Committed offset of one group for one partition.

    Attributes:
        offset: the next offset that the group reads, as it was committed.
        high_watermark: of the partition at that moment; None for a partition that is not tiered.
        restored_offset: offset that a restore of that moment sets, which is never above the high watermark.
        committed_ms: time of the commit.
    """

    group: str
    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    high_watermark: int | None
    restored_offset: int

    @property
    def lag(self) -> int | None:
        """Return the records between the group and the high watermark, markers included; None if unknown."""
        return None if self.high_watermark is None else max(0, self.high_watermark - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPositions:
    """Answer of ``tierd groups``.

    Attributes:
        positions: by group and partition.
        taken_ms: moment of the positions of each node.
        problems: objects of the catalogue that could not be used; an earlier one stands in where there is one.
    """

    positions: tuple[GroupPosition, ...]
    taken_ms: dict[int, int]
    problems: tuple[str, ...]


async def group_positions(deployment: Deployment, groups: list[str], *, at_ms: int | None) -> GroupPositions:
    """Return the committed offsets of ``groups``, of all when none is named; ``at_ms`` None stands for the newest.

    Raises:
        ConfigError: the cluster is not known.
        TierError: a named group has no committed offset at that moment.
        RemoteStorageError: the store does not answer.
    """
    cluster_id = await deployment.known_cluster_id()
    if cluster_id is None:
        message = "cluster_id is not set, and no log dir has a meta.properties that says it: set cluster_id"
        raise ConfigError([ConfigFault(deployment.config_file, 0, 0, message)])
    keys = ObjectKeyFactory(deployment.key_prefix, cluster_id)
    async with deployment.object_store(clock=SystemClock()) as store:
        storage = CatalogueStorage(store, keys, open_key_ring(deployment.encryption))
        found = await read_positions_at(storage, at_ms)
    cut = positions_at(found.positions)
    missing = sorted(set(groups) - set(cut.groups))
    if missing:
        raise TierError(
            f"{', '.join(missing)}: no committed offset in the catalogue at that moment",
            remedy="tierd groups without a name lists all groups; tierd status shows problems of the catalogue",
            code=TierErrorCode.UNKNOWN_GROUP,
        )
    chosen = tuple(each for each in _positions(cut) if not groups or each.group in groups)
    return GroupPositions(positions=chosen, taken_ms=dict(cut.taken_ms), problems=found.problems)


def _positions(cut: PositionsAt) -> list[GroupPosition]:
    committed = {(each.group, each.partition): each.committed_offset for each in cut.lowered}
    return [
        GroupPosition(
            group=group,
            partition=partition,
            offset=committed.get((group, partition), commit.offset),
            leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            committed_ms=commit.committed_ms,
            high_watermark=cut.high_watermark(partition, commit),
            restored_offset=commit.offset,
        )
        for group, commits in sorted(cut.groups.items())
        for partition, commit in sorted(commits.items())
    ]
