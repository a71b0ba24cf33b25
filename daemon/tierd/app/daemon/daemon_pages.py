"""DaemonPages: the sources of the daemon's pages, and the task that samples throughput and lag each minute."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
from pydantic import JsonValue

from tierd.app.daemon.bounded_jobs import BoundedJobs
from tierd.app.daemon.daemon_push import DaemonPush
from tierd.app.daemon.page_inventory import PageInventory
from tierd.app.daemon.past_work import PastWorkReader
from tierd.app.daemon.unprotected_watch import UnprotectedWatch
from tierd.app.engine.compose import Engine
from tierd.config import RemoteSettings
from tierd.control import Role
from tierd.model import TopicPartition
from tierd.serve import (
    CopyOnNode,
    PageSources,
    PushLeaderSummary,
    PushStandbySummary,
    RateSample,
    RateSeries,
    StatusSnapshot,
    TierSources,
)
from tierd.tiering import Replica, Tiering, sum_contents

log = structlog.get_logger()

SAMPLE_S: Final = 60.0
INVENTORY_S: Final = 2.0  # a first look at a million segments takes seconds, and the next call goes on with it
_REPLICAS_PER_TURN: Final = 500


class DaemonPages:
    """Sources of the pages of one daemon."""

    def __init__(
        self,
        engine: Engine,
        tiering: Tiering,
        *,
        push: DaemonPush,
        unprotected: UnprotectedWatch,
        remote: RemoteSettings,
        price_file: Path | None,
    ) -> None:
        """Read nothing yet; ``remote`` and ``price_file`` tell the prices of the store."""
        jobs = BoundedJobs()
        self._engine = engine
        self._tiering = tiering
        self._unprotected = unprotected
        self._rates = RateSeries()
        self._tier: Mapping[str, JsonValue] = {}
        self._inventory = PageInventory(
            tiering,
            engine.metadata,
            engine.storage,
            lambda name: copies_of(push.facts(), name),
            jobs=jobs,
            clock=engine.clock,
        )
        self._past = PastWorkReader(engine.deployment.state_dir, remote, price_file, jobs=jobs, clock=engine.clock)

    def sources(self, status: Callable[[], Awaitable[StatusSnapshot]]) -> PageSources:
        """Return the sources; ``status`` returns the status of this moment."""
        identity = self._engine.identity
        return PageSources(
            status=status,
            whose=f"cluster {identity.cluster_id}, node {identity.node_id}",
            tier=TierSources(
                inventory=self._inventory.inventory,
                partition=self._inventory.partition,
                manifests=self._inventory.manifests,
                past=self._past.read,
                rates=self._rates,
            ),
        )

    async def tier_facts(self) -> Mapping[str, JsonValue]:
        """Return the contents of the tier within ``INVENTORY_S``, else those of an earlier call; empty before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INVENTORY_S):
                found = await self._inventory.inventory()
                contents = sum_contents(each.contents for each in found.partitions)
                self._tier = {
                    "partitions": len(found.partitions),
                    "segments": contents.segments,
                    "size_bytes": contents.size_bytes,
                    "oldest_ms": contents.oldest_ms,
                    "newest_ms": contents.newest_ms,
                }
        return self._tier

    async def run(self) -> None:
        """Take a sample each minute until cancelled. No failure of it, not even a bug, ends the daemon."""
        while True:
            try:
                self._rates.add(self._engine.clock.monotonic_s(), await self._sample())
            except Exception:
                log.exception("sample_not_taken")
            await self._engine.clock.sleep(SAMPLE_S)

    async def _sample(self) -> RateSample:
        totals = self._engine.metrics.totals()
        segments = size_bytes = 0
        oldest_ms: int | None = None
        for number, replica in enumerate(self._tiering.replicas.all()):
            if _counts(replica):
                lag = replica.local.lag()
                segments, size_bytes = segments + lag.segments, size_bytes + lag.bytes
                oldest_ms = min((each for each in (oldest_ms, lag.oldest_ms) if each is not None), default=None)
            if number % _REPLICAS_PER_TURN == _REPLICAS_PER_TURN - 1:
                await asyncio.sleep(0)
        return RateSample(
            copied_bytes=totals.copied_bytes,
            fetched_bytes=totals.fetched_bytes,
            store_requests=totals.store_requests,
            lag_bytes=size_bytes,
            lag_segments=segments,
            lag_seconds=0 if oldest_ms is None else max(0, self._engine.clock.now_ms() - oldest_ms) / 1000,
            unprotected_bytes=sum(each.size_bytes for each in self._unprotected.use()),
        )


def copies_of(push: Mapping[str, JsonValue], name: TopicPartition) -> Sequence[CopyOnNode]:
    """Return the copies of a partition that the section ``push`` of the status has: on standbys, and on this host."""
    return [*_sent(push.get("leader"), str(name)), *_kept(push, str(name))]


def _sent(leader: JsonValue, name: str) -> Iterator[CopyOnNode]:
    found = _named(leader, name)
    if found is None:
        return
    partition = PushLeaderSummary.model_validate({"partitions": [found]}).partitions[0]
    for standby in partition.standbys:
        behind = "" if standby.in_sync else f"{standby.lag_records:,} records behind"
        yield CopyOnNode(
            node_id=standby.node_id,
            start_offset=partition.log_start_offset,
            end_offset=standby.log_end_offset,
            detail="; ".join(filter(None, (behind, standby.why_not_pushed))),
        )


def _kept(push: Mapping[str, JsonValue], name: str) -> Iterator[CopyOnNode]:
    found, node_id = _named(push.get("standby"), name), push.get("node_id")
    if found is None or not isinstance(node_id, int):
        return
    kept = PushStandbySummary.model_validate({"partitions": [found]}).partitions[0]
    yield CopyOnNode(
        node_id=node_id,
        start_offset=kept.log_start_offset,
        end_offset=kept.log_end_offset,
        detail="; ".join(filter(None, ("the copy on this host", kept.last_error))),
    )


def _named(side: JsonValue, name: str) -> JsonValue:
    """Return the partition of that name of one side; None without it. Only that one is parsed, of many thousands."""
    partitions = side.get("partitions") if isinstance(side, dict) else None
    if not isinstance(partitions, list):
        return None
    return next((each for each in partitions if isinstance(each, dict) and each.get("partition") == name), None)


def _counts(replica: Replica) -> bool:
    """Return True if the tier is to have the replica's segments: a follower's lag is its leader's."""
    return replica.leadership is None or replica.leadership.role is Role.LEADER
