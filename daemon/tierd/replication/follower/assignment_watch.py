"""AssignmentWatch: asks one leader again and again which partitions it sends to this standby (long poll)."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock, wait_for_event
from tierd.errors import TierError
from tierd.replication.follower.leader_connection import LeaderConnection
from tierd.replication.follower.replica_keeper import ReplicaKeeper
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.model.messages import AssignmentsRequest, AssignmentsResponse

_LOG = structlog.get_logger(__name__)
_ANSWER_TIMEOUT_S: Final = 10.0
_SHORTEST_S: Final = 0.05


class AssignmentWatch:
    """Watch of one leader's announcements. For one event loop; ``run`` is its task."""

    def __init__(
        self,
        leader_id: int,
        connection: LeaderConnection,
        keeper: ReplicaKeeper,
        *,
        identity: StandbyIdentity,
        clock: Clock,
        settings: StandbySettings,
    ) -> None:
        """Prepare."""
        self._leader_id = leader_id
        self._connection = connection
        self._keeper = keeper
        self._identity = identity
        self._clock = clock
        self._settings = settings
        self._version = -1
        self._answered_s = clock.monotonic_s()
        self._backoff = Backoff(base_s=0.1, cap_s=1.0)  # what a leader writes meanwhile has no second copy
        self._hurry = asyncio.Event()
        self.last_error = ""

    def hurry(self) -> None:
        """End the pause after a failure: another node says that leadership has changed."""
        self._hurry.set()

    async def run(self, *, random: Callable[[], float]) -> None:
        """Ask until cancelled; ``random`` is in [0, 1) and spreads the retries."""
        failures = 0
        while True:
            try:
                began_s = self._clock.monotonic_s()
                await self.ask_once()
                if self._clock.monotonic_s() - began_s < _SHORTEST_S:  # a leader that holds nothing back
                    await self._rest(_SHORTEST_S)
            except TierError as error:
                failures += 1
                self._note_failure(error, failures)
                await self._rest(self._backoff.delay_s(failures, random=random))
            else:
                failures = 0

    async def ask_once(self) -> None:
        """Ask once, and carry out what the answer asks for.

        Raises:
            TierError: no answer.
        """
        if not self._connection.is_open:
            self._version = -1  # another process of the leader counts its versions anew
        request = AssignmentsRequest(
            replica_id=self._identity.node_id,
            replica_epoch=self._identity.process_epoch,
            known_version=self._version,
            max_wait_ms=round(self._settings.assignments_wait_s * 1000),
        )
        timeout_s = self._settings.assignments_wait_s + _ANSWER_TIMEOUT_S
        response = await self._connection.ask(request, AssignmentsResponse, timeout_s)
        self._answered_s, self.last_error = self._clock.monotonic_s(), ""
        self._version = response.version
        steps = self._keeper.book.on_announced(self._leader_id, response.partitions, response.deleted)
        await self._keeper.carry_out(steps)

    def _note_failure(self, error: TierError, failures: int) -> None:
        self.last_error = error.explained
        if failures == 1:
            _LOG.warning("assignments_not_received", leader=self._leader_id, error=str(error), remedy=error.remedy)
        if self._clock.monotonic_s() - self._answered_s > self._settings.lost_after_s:
            self._keeper.book.on_lost(self._leader_id)

    async def _rest(self, pause_s: float) -> None:
        self._hurry.clear()
        await wait_for_event(self._hurry, self._clock, pause_s)
