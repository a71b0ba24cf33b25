"""EndpointGroups: all groups that one endpoint coordinates. The shell around the protocol: it owns tasks and timers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from tierd.clock import Clock
from tierd.errors import MetadataError, TierError
from tierd.rare_lines import LinesPerSecond
from tierd.serve.kafka.groups.coordination.alarms import Alarms
from tierd.serve.kafka.groups.coordination.coordination_limits import CoordinationLimits
from tierd.serve.kafka.groups.coordination.group_statistics import GroupCounters
from tierd.serve.kafka.groups.coordination.hosted_group import GroupHost, HostedGroup
from tierd.serve.kafka.groups.coordination.placement import Placement
from tierd.serve.kafka.groups.protocol.group_events import GroupGone, TimePassed
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup
from tierd.serve.kafka.groups.storage.group_store import GroupStore

_log = structlog.get_logger(__name__)

_MOST_LINES: Final = 50  # a second, about groups that come and go

_Loading: TypeAlias = "asyncio.Task[HostedGroup | ErrorCode]"


class GroupRefusedError(TierError):
    """A request to a group that this endpoint does not answer; ``error`` is the code for the client."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"refused: {error.name}")
        self.error = error


class EndpointGroups:
    """Groups of this endpoint, by name.

    A group is claimed and loaded when a client asks for it, and kept while it is used. ``run`` has to run meanwhile;
    before and after it, requests are answered COORDINATOR_NOT_AVAILABLE, and clients ask again.
    """

    def __init__(
        self,
        store: GroupStore,
        placement: Placement,
        limits: CoordinationLimits,
        *,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        self.store = store
        self.placement = placement
        self.limits = limits
        self.clock = clock
        self.new_id = new_id
        self.counters = GroupCounters()
        self.hosted: dict[str, HostedGroup] = {}
        self.known_groups = 0
        """Number of groups in the store, as of the last round of upkeep and the groups made since."""
        self.idle_offset_bytes = 0
        """About the bytes of the commits that are in the store only, as of the last round and the changes since."""
        self.member_bytes = 0
        """About the memory of the members of all groups."""
        self._alarms = Alarms(clock)
        self._loading: dict[str, tuple[_Loading, bool]] = {}
        self._slots = asyncio.Semaphore(limits.max_loads)
        self._tasks: asyncio.TaskGroup | None = None
        self._host = GroupHost(
            clock=clock,
            alarms=self._alarms,
            counters=self.counters,
            limits=limits.membership,
            lines=LinesPerSecond(clock, most=_MOST_LINES),
            spawn=self._spawn,
            on_gone=self._forget,
            on_sized=self._count_members,
        )

    async def run(self) -> None:
        """Coordinate groups until cancelled; then send waiting clients away."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    await self._keep_time()
                finally:
                    self._tasks = None
        finally:
            for hosted in tuple(self.hosted.values()):
                hosted.step(GroupGone("the endpoint stops"))

    async def find(self, group: str, *, may_create: bool = False) -> HostedGroup:
        """Return a group of this endpoint, claimed and loaded; one that does not exist may be created.

        Raises:
            GroupRefusedError: with NOT_COORDINATOR where another endpoint coordinates it, GROUP_ID_NOT_FOUND where
                there is no such group, COORDINATOR_NOT_AVAILABLE where the store does not answer, and POLICY_VIOLATION
                where there are too many groups.
        """
        while True:
            self.require_place(group)
            if (hosted := self.hosted.get(group)) is not None:
                return hosted
            loading, creates = self._loading.get(group) or self._begin_loading(group, may_create=may_create)
            outcome = await asyncio.shield(loading)
            if isinstance(outcome, ErrorCode) and (creates or not may_create):
                raise GroupRefusedError(outcome)

    def require_place(self, group: str) -> None:
        """Raise if this endpoint does not coordinate the group, or does not run; abandon a group that has moved.

        Raises:
            GroupRefusedError: NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE.
        """
        if self._tasks is None:
            raise GroupRefusedError(ErrorCode.coordinator_not_available)
        if not self.placement.is_here(group):
            if (hosted := self.hosted.get(group)) is not None:
                hosted.lose("another endpoint coordinates the group")
            raise GroupRefusedError(ErrorCode.not_coordinator)

    def offset_bytes(self) -> int:
        """Return about the bytes of all commits in memory."""
        return sum(each.writer.claimed.size_bytes for each in self.hosted.values())

    def require_memory(self, *, joining_bytes: int = 0, assigned_bytes: int = 0) -> None:
        """Raise if members would take more memory than they may; a part of it is for assignments only.

        Raises:
            GroupRefusedError: COORDINATOR_LOAD_IN_PROGRESS, after which a client asks again.
        """
        most_bytes = self.limits.max_member_bytes
        has_room = joining_bytes <= 0 or self.member_bytes + joining_bytes <= most_bytes * 3 // 4
        has_room &= assigned_bytes <= 0 or self.member_bytes + assigned_bytes <= most_bytes
        if not has_room:
            raise GroupRefusedError(ErrorCode.coordinator_load_in_progress)

    def may_commit(self, added_bytes: int) -> bool:
        """Return True if new commits may take so many bytes more, in memory and in the store."""
        used_bytes = self.offset_bytes() + added_bytes
        is_in_store = used_bytes + self.idle_offset_bytes <= self.limits.max_stored_offset_bytes
        return is_in_store and used_bytes <= self.limits.max_offset_bytes

    def release_idle(self, *, unused_s: float) -> None:
        """Give up the groups without members that were not used for so long; the store has all of them."""
        before_s = self.clock.monotonic_s() - unused_s
        for hosted in tuple(self.hosted.values()):
            if hosted.is_idle and hosted.used_at_s <= before_s:
                hosted.step(GroupGone("not used"))  # a request that has just found it finds it anew

    def _begin_loading(self, group: str, *, may_create: bool) -> tuple[_Loading, bool]:
        assert self._tasks is not None, "require_place has checked it"
        task = self._tasks.create_task(self._load(group, may_create=may_create), name=f"load of group {group}")
        self._loading[group] = (task, may_create)
        return task, may_create

    async def _load(self, group: str, *, may_create: bool) -> HostedGroup | ErrorCode:
        try:
            async with self._slots:
                if not self._has_room():
                    return ErrorCode.policy_violation
                is_full = self.known_groups >= self.limits.max_groups
                if may_create and is_full and await self.store.row(group) is None:
                    return ErrorCode.policy_violation
                return await self._claim(group, may_create=may_create)
        except MetadataError as error:
            _log.warning("group_not_loaded", group=group, error=str(error))
            return ErrorCode.coordinator_not_available
        finally:
            self._loading.pop(group, None)

    async def _claim(self, group: str, *, may_create: bool) -> HostedGroup | ErrorCode:
        claimed = await ClaimedGroup.claim(
            self.store,
            group,
            owner_id=self.placement.node_id,
            session_id=self.new_id(),
            now_ms=self.clock.now_ms(),
            may_create=may_create,
        )
        if claimed is None:
            return ErrorCode.group_id_not_found
        self.known_groups += claimed.row.revision == 0
        self.counters.claims += 1
        self.idle_offset_bytes = max(0, self.idle_offset_bytes - claimed.size_bytes)
        hosted = self.hosted[group] = HostedGroup(claimed, self._host)
        hosted.step(TimePassed())  # a group that has lost its members with its coordinator is stored as empty
        return hosted

    def _has_room(self) -> bool:
        if len(self.hosted) >= self.limits.max_groups:
            self.release_idle(unused_s=0.0)
        return len(self.hosted) < self.limits.max_groups

    async def _keep_time(self) -> None:
        while True:
            for name in self._alarms.take_due():
                if (hosted := self.hosted.get(name)) is not None:
                    hosted.step(TimePassed())
            await self._alarms.wait()

    def _forget(self, gone: HostedGroup) -> None:
        if self.hosted.get(gone.name) is gone:
            del self.hosted[gone.name]
            self.idle_offset_bytes += gone.writer.claimed.size_bytes

    def _count_members(self, change_bytes: int) -> None:
        self.member_bytes += change_bytes

    def _spawn(self, work: Callable[[], Coroutine[object, object, None]], name: str) -> bool:
        if self._tasks is None:
            return False
        self._tasks.create_task(work(), name=name)
        return True
