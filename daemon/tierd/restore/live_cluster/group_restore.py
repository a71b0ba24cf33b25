"""Positions of consumer groups in a live cluster: what is set, and the setting (DESIGN 13, trap 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tierd.control import CoordinatedGroupState, LogBound, NewPosition, commit_positions, describe_group
from tierd.errors import KafkaError, RefusedError, TierError
from tierd.model import TopicPartition
from tierd.restore.catalogue.catalogue_objects import CommittedPosition
from tierd.restore.live_cluster.offset_map import OffsetMap
from tierd.restore.live_cluster.target_cluster import TargetCluster
from tierd.restore.live_cluster.target_log import listed_offset

CommittedGroups = Mapping[str, Mapping[TopicPartition, CommittedPosition]]

_UNUSED: Final = frozenset({"Empty", "Dead", ""})


class PositionChange(StrEnum):
    """Change of a position on its way to the target."""

    SET = "set"
    LOWERED = "lowered"  # the target ends below the position: the group reads on with the next new record
    RAISED = "raised"  # the target begins above the position
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPosition:
    """Position of a group in one partition.

    Attributes:
        source: in the catalogue.
        offset: as it was committed.
        target: None where the position is skipped.
        new_offset: in the target; -1 where the position is skipped.
        reason: why it is skipped; otherwise empty.
    """

    group: str
    source: TopicPartition
    offset: int
    target: TopicPartition | None
    new_offset: int
    metadata: str
    change: PositionChange
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """Outcome of one group; ``problem`` is None when all its positions are set."""

    group: str
    problem: TierError | None


def plan_positions(
    groups: CommittedGroups, offset_map: OffsetMap | None, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> list[PlannedPosition]:
    """Return what is to be set.

    Args:
        groups: as the catalogue has them.
        offset_map: of the restore; None where offsets were kept.
        bounds: first offset and high watermark of the partitions that the target has.
    """
    return [
        _planned(group, source, position, offset_map, bounds)
        for group, positions in sorted(groups.items())
        for source, position in sorted(positions.items())
    ]


def targets_of(groups: CommittedGroups, offset_map: OffsetMap | None) -> list[TopicPartition]:
    """Return the partitions of the target that the positions concern."""
    sources = {source for positions in groups.values() for source in positions}
    if offset_map is None:
        return sorted(sources)
    return sorted({offset_map[source].target for source in sources if source in offset_map})


def _planned(
    group: str,
    source: TopicPartition,
    position: CommittedPosition,
    offset_map: OffsetMap | None,
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> PlannedPosition:
    def planned(
        change: PositionChange, target: TopicPartition | None = None, new_offset: int = -1, reason: str = ""
    ) -> PlannedPosition:
        return PlannedPosition(
            group=group,
            source=source,
            offset=position.offset,
            target=target,
            new_offset=new_offset,
            metadata=position.metadata,
            change=change,
            reason=reason,
        )

    target, offset, is_lowered = source, position.offset, False
    if offset_map is not None:
        partition = offset_map.get(source)
        mapped = None if partition is None else partition.translated(offset)
        if partition is None or mapped is None:
            return planned(PositionChange.SKIPPED, reason="the offset map has no records of the partition")
        target, offset, is_lowered = partition.target, mapped.offset, mapped.is_lowered
    if target not in bounds:
        return planned(PositionChange.SKIPPED, reason="the target does not have the partition")
    first, end = bounds[target]
    if offset > end:
        return planned(PositionChange.LOWERED, target, end)
    if offset < first:
        return planned(PositionChange.RAISED, target, first)
    return planned(PositionChange.LOWERED if is_lowered else PositionChange.SET, target, offset)


async def log_bounds(
    target: TargetCluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return first offset and high watermark of those partitions that the target has.

    Raises:
        KafkaError: the target does not answer.
    """
    topics = await target.patiently(lambda: target.leaders(sorted({each.topic for each in partitions})), lambda _: "")
    found: dict[TopicPartition, tuple[int, int]] = {}
    for name in partitions:
        topic = topics.get(name.topic)
        if topic is None or name.partition not in {each.partition for each in topic.partitions}:
            continue
        first, end = (
            await listed_offset(target, name, LogBound.EARLIEST),
            await listed_offset(target, name, LogBound.LATEST),
        )
        found[name] = (first, end)
    return found


async def require_unused(target: TargetCluster, groups: Sequence[str]) -> None:
    """Raise if a group has members.

    Raises:
        RefusedError: the groups that have members.
        KafkaError: the target does not answer.
    """
    active = []
    for group in groups:
        state = await _state(target, group)
        if state.error not in {"", "group_id_not_found"}:
            raise KafkaError(
                f"the state of group {group} is not told: {state.error}",
                remedy="grant the user of the target the right Describe on the group",
            )
        if state.state not in _UNUSED or state.member_count:
            active.append(f"{group} ({state.state}, {state.member_count} members)")
    if active:
        raise RefusedError(
            f"{len(active)} groups are in use in the target: {', '.join(active[:5])}",
            remedy="stop their consumers, then run the same command again",
        )


async def _state(target: TargetCluster, group: str) -> CoordinatedGroupState:
    request = describe_group(group)
    return await target.patiently(lambda: target.ask_coordinator(group, request), lambda each: each.error)


async def set_positions(target: TargetCluster, planned: Sequence[PlannedPosition]) -> list[GroupOutcome]:
    """Set the positions group by group; a group that fails does not keep the others from being set.

    Raises:
        RefusedError: a group has members; nothing was set.
        KafkaError: the target does not answer.
    """
    by_group: dict[str, dict[TopicPartition, NewPosition]] = {}
    for each in planned:
        if each.target is not None:
            by_group.setdefault(each.group, {})[each.target] = NewPosition(each.new_offset, -1, each.metadata)
    await require_unused(target, sorted(by_group))
    return [GroupOutcome(group, await _set(target, group, positions)) for group, positions in sorted(by_group.items())]


async def _set(target: TargetCluster, group: str, positions: Mapping[TopicPartition, NewPosition]) -> TierError | None:
    request = commit_positions(group, positions)

    def error_of(answer: Mapping[TopicPartition, str]) -> str:
        return next((error for error in answer.values() if error), "")

    answer = await target.patiently(lambda: target.ask_coordinator(group, request), error_of)
    error = error_of(answer)
    if not error:
        return None
    if error in {"unknown_member_id", "illegal_generation", "rebalance_in_progress", "stale_member_epoch"}:
        return RefusedError(
            f"group {group} is in use in the target: {error}", remedy="stop its consumers, then run again"
        )
    return KafkaError(
        f"group {group}: the target answers {error}",
        remedy="grant the user of the target the right Read on the group and on its topics",
    )
