"""GroupUpkeep: rounds over the groups of one endpoint: expiry of commits, removal of groups, and checks of claims."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog
from kio.schema.errors import ErrorCode

from tierd.errors import MetadataDecodeError, MetadataError
from tierd.serve.kafka.groups.coordination.endpoint_groups import EndpointGroups, GroupRefusedError
from tierd.serve.kafka.groups.coordination.group_statistics import GroupsStatistics, GroupStatistics
from tierd.serve.kafka.groups.coordination.hosted_group import HostedGroup
from tierd.serve.kafka.groups.protocol.group_state import ClassicGroupState
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey, expired_offsets
from tierd.serve.kafka.groups.storage.group_rows import GroupRow

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _IdleGroup:
    """A group that no client uses, as the store had it in the last round."""

    row: GroupRow
    offsets: Mapping[OffsetKey, GroupOffset]

    def statistics(self) -> GroupStatistics:
        return GroupStatistics(
            group=self.row.group,
            state=ClassicGroupState.EMPTY.value,
            generation=self.row.generation,
            protocol_type=self.row.protocol_type or "",
            protocol_name="",
            members=(),
            offsets=self.offsets,
        )


class GroupUpkeep:
    """Rounds over the groups of one endpoint. A round that the store does not answer is left to the next one."""

    def __init__(self, groups: EndpointGroups) -> None:
        self._groups = groups
        self._idle: dict[str, _IdleGroup] = {}
        self._is_complete = True

    async def run(self) -> None:
        """Go round until cancelled: claims often, commits seldom, at first soon after the start."""
        limits, clock = self._groups.limits, self._groups.clock
        next_round_s = clock.monotonic_s() + limits.claim_check_interval_s
        while True:
            await clock.sleep(limits.claim_check_interval_s)
            try:
                await self.check_claims()
                if clock.monotonic_s() >= next_round_s:
                    await self.go_round()
                    next_round_s = clock.monotonic_s() + limits.upkeep_interval_s
            except MetadataError as error:
                _log.warning("group_upkeep_failed", error=str(error))

    async def check_claims(self) -> None:
        """Give up groups that have moved, or that another endpoint has claimed."""
        groups = self._groups
        for hosted in tuple(groups.hosted.values()):
            if not groups.placement.is_here(hosted.name):
                hosted.lose("another endpoint coordinates the group")
        if groups.placement.is_alone:
            return
        checked = {each.name: each for each in groups.hosted.values() if not each.writer.is_busy}
        rows = await groups.store.rows(checked)
        for name, hosted in checked.items():
            row = rows.get(name)
            is_claimed = row is not None and row.session_id == hosted.writer.claimed.row.session_id
            if not is_claimed and groups.hosted.get(name) is hosted:
                hosted.lose("another endpoint has claimed the group")

    async def go_round(self) -> None:
        """Remove what has expired, abandon groups that no client uses, and count those of the store."""
        groups = self._groups
        rows = await groups.store.all_rows()
        groups.known_groups = len(rows)
        groups.release_idle(unused_s=groups.limits.upkeep_interval_s)
        idle: dict[str, _IdleGroup] = {}
        size_bytes = groups.offset_bytes()
        for row in rows:
            if not groups.placement.is_here(row.group):
                continue
            if row.group not in groups.hosted:
                try:
                    found = _IdleGroup(row, await groups.store.offsets(row.group))
                except MetadataDecodeError as error:  # the round goes on: of the others, commits expire
                    _log.warning("group_row_damaged", key=row.group, error=str(error))
                    continue
                if not self._seems_expired(found):
                    size_bytes += sum(each.size_bytes for each in found.offsets.values())
                    if size_bytes <= groups.limits.max_offset_bytes:
                        idle[row.group] = found
                    continue
            await self._expire(row.group)
        groups.idle_offset_bytes = max(0, size_bytes - groups.offset_bytes())
        self._is_complete = size_bytes <= groups.limits.max_offset_bytes
        self._idle = idle

    def statistics(self) -> GroupsStatistics:
        """Return the groups that this endpoint coordinates."""
        hosted = {name: each.statistics() for name, each in self._groups.hosted.items()}
        idle = {name: each.statistics() for name, each in self._idle.items() if self._groups.placement.is_here(name)}
        merged = idle | hosted
        return GroupsStatistics(
            groups=tuple(merged[name] for name in sorted(merged)),
            is_complete=self._is_complete,
            counters=replace(self._groups.counters),
        )

    def _seems_expired(self, found: _IdleGroup) -> bool:
        """Return True if the group is worth a claim, after which its expiry is decided.

        A group that has members by its row, and that no endpoint has written for a whole round, lost them when its
        coordinator ended: once claimed, it is empty, and its retention begins.
        """
        last = self._idle.get(found.row.group)
        if found.row.empty_since_ms is None and last is not None and last.row == found.row:
            return True
        now_ms, retention_s = self._groups.clock.now_ms(), self._groups.limits.offsets_retention_s
        since_ms = found.row.empty_since_ms or 0
        return any(
            each.is_expired(max(since_ms, each.commit_ms), now_ms=now_ms, retention_s=retention_s)
            for each in found.offsets.values()
        ) or (not found.offsets and self._is_removable(found.row.generation, found.row.empty_since_ms))

    async def _expire(self, group: str) -> None:
        try:
            hosted = await self._groups.find(group)
        except GroupRefusedError:
            return  # it is gone, or elsewhere
        claimed, retention_s = hosted.writer.claimed, self._groups.limits.offsets_retention_s
        keys = expired_offsets(
            claimed.offsets, hosted.retention, now_ms=self._groups.clock.now_ms(), retention_s=retention_s
        )
        if keys:
            _log.info("group_offsets_expired", group=group, partitions=len(keys))
            await hosted.writer.expire({key: claimed.offsets[key] for key in keys})
        if self._may_remove(hosted) and await hosted.writer.remove_group(lambda: self._may_remove(hosted)) is (
            ErrorCode.none
        ):
            _log.info("group_removed", group=group)

    def _may_remove(self, hosted: HostedGroup) -> bool:
        is_unused = hosted.core.is_idle and not hosted.writer.claimed.offsets
        return is_unused and self._is_removable(hosted.core.generation, hosted.core.empty_since_ms)

    def _is_removable(self, generation: int, empty_since_ms: int | None) -> bool:
        """Return True for a group that never had a generation, and for one that lost its members long ago.

        Kafka removes every group without members and commits; here generations go on for the time of the retention.
        """
        if generation == 0:
            return True
        retention_ms = self._groups.limits.offsets_retention_s * 1000
        return empty_since_ms is not None and self._groups.clock.now_ms() - empty_since_ms >= retention_ms
