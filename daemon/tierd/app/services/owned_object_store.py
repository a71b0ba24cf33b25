"""OwnedObjectStore: nothing is written into a tier before the prefix is proven to be ours (DESIGN 4)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import ForeignTierError, MetadataError, RemoteStorageError, TierError
from tierd.remote import ForwardedCall, ForwardingObjectStore, ObjectStore

log = structlog.get_logger()

T = TypeVar("T")


class OwnedObjectStore(ForwardingObjectStore):
    """An ``ObjectStore`` that proves its ownership before the first change; reads pass through.

    A daemon may therefore start while the object store is away: partitions are watched and segments held meanwhile.
    """

    def __init__(self, inner: ObjectStore, claim: Callable[[], Awaitable[None]]) -> None:
        """Claim nothing yet; ``claim`` returns when the prefix is ours, and may be called again after a failure."""
        super().__init__(inner)
        self._claim = claim
        self._claiming = asyncio.Lock()
        self.problem = "the object store has not answered yet"
        """Reason why the tier is not ours yet; empty once the tier is ours."""

    async def own(self) -> None:
        """Claim the prefix unless that is done.

        Raises:
            ForeignTierError: it belongs to another metadata store.
            RemoteStorageError: the object store failed.
            MetadataError: the metadata store, which says if the tier was ever claimed, failed.
        """
        if not self.problem:
            return
        async with self._claiming:  # held across the network on purpose: one claim serves every caller that waits
            if not self.problem:  # another caller's claim has succeeded meanwhile
                return
            try:
                await self._claim()
            except TierError as error:
                self.problem = str(error)
                raise
            self.problem = ""

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        if call.is_change:
            await self.own()
        return await send()


async def own_until_done(
    store: OwnedObjectStore, *, clock: Clock, random: Callable[[], float], backoff: Backoff
) -> None:
    """Try until the prefix is ours, with backoff; logs each change of cause once.

    Raises:
        ForeignTierError: it belongs to another metadata store, which no waiting changes.
    """
    failures, reported = 0, ""
    while True:
        try:
            await store.own()
        except ForeignTierError:
            raise
        except (RemoteStorageError, MetadataError) as error:
            failures += 1
            if str(error) != reported:
                reported = str(error)
                log.warning("tier_not_reachable", problem=reported, remedy=error.remedy)
        else:
            return
        await clock.sleep(backoff.delay_s(failures, random=random))
