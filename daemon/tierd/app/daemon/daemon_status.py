"""Status of the running daemon: a snapshot of every room, and the causes that keep the daemon from its work."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from tierd.app.daemon.daemon_catalogue import DaemonCatalogue
from tierd.app.daemon.daemon_drills import DaemonDrills
from tierd.app.daemon.daemon_endpoint import DaemonEndpoint
from tierd.app.daemon.daemon_pages import DaemonPages
from tierd.app.daemon.daemon_push import DaemonPush
from tierd.app.daemon.descriptors import PortGates
from tierd.app.daemon.stop_request import StopRequest
from tierd.app.daemon.unprotected_watch import UnprotectedWatch, worst_of
from tierd.app.engine.compose import Engine
from tierd.app.spark.daemon_pipeline import DaemonPipeline
from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.serve import Outage, StatusSnapshot
from tierd.tiering import PartitionStatus, RemoteLogManager
from tierd.version import __version__, read_build

LOADING_INTERVAL_S: Final = 0.25
_NAMED: Final = 5  # partitions, where a cause names some


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """Parts of the daemon that have a section of their own in the status."""

    pipeline: DaemonPipeline
    catalogue: DaemonCatalogue
    drills: DaemonDrills
    endpoint: DaemonEndpoint
    push: DaemonPush
    unprotected: UnprotectedWatch
    pages: DaemonPages


class LoadingWatch:
    """Partitions that are being loaded, found anew at most some times a second: a probe may ask at any rate.

    The search looks at every partition. An answer without partitions is not kept: all of them are loaded then.
    """

    def __init__(self, find: Callable[[], Sequence[TopicPartition]], *, clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._found: Sequence[TopicPartition] = ()
        self._found_s = 0.0

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions that are being loaded, or were some moments ago."""
        now_s = self._clock.monotonic_s()
        if not self._found or now_s - self._found_s >= LOADING_INTERVAL_S:
            self._found, self._found_s = self._find(), now_s
        return self._found


class DaemonStatus:
    """Status of the daemon at any moment, for the status page, the control socket and systemd."""

    def __init__(
        self,
        engine: Engine,
        manager: RemoteLogManager,
        *,
        parts: WatchedParts,
        ports: PortGates,
        stop: StopRequest,
        is_file_rejected: Callable[[], bool],
        started_ms: int,
    ) -> None:
        """Read nothing yet; ``is_file_rejected`` returns True if the last reload refused the configuration file."""
        self._engine = engine
        self._manager = manager
        self._parts = parts
        self._ports = ports
        self._stop = stop
        self._is_file_rejected = is_file_rejected
        self._started_ms = started_ms
        self._commit = read_build().commit
        self._loaded = False
        self._loading = LoadingWatch(manager.loading, clock=engine.clock)

    async def wait_until_loaded(self) -> None:
        """Return once all log dirs were scanned and the metadata of all partitions was loaded."""
        await self._manager.first_reconcile_done.wait()
        await self._manager.everything_loaded()
        self._loaded = True

    def line(self) -> str:
        """Return the line for ``systemctl status``, with a note if the last reload rejected the file."""
        line = self._snapshot(self._manager.status()).status_line()
        if self._is_file_rejected():
            return f"the configuration file was rejected: tierd check-config; {line}"
        return line

    def not_ready(self) -> list[str]:
        """Return why the daemon is not ready; empty when it is ready."""
        is_reconciled = self._manager.first_reconcile_done.is_set()
        is_loading = is_reconciled and not self._loaded  # before, the scan is the cause that is told
        return not_ready_causes(
            outages=self._engine.services.outages(),
            stopping=self._stop.reason if self._stop.asked.is_set() else "",
            is_reconciled=is_reconciled,
            loading=self._loading.partitions() if is_loading else (),
            unknown_roles=self._engine.control.not_ready(),
            unowned_tier=self._engine.store.problem,
            unserved=self._parts.endpoint.not_ready,
            unreplicated=self._parts.push.not_ready,
        )

    async def current(self) -> StatusSnapshot:
        """Return the status of this moment, with the high watermarks that the log dirs have now."""
        snapshot = self._snapshot(await self._manager.current_status())
        endpoint, tier = await self._parts.endpoint.facts_with_lag(), await self._parts.pages.tier_facts()
        return replace(snapshot, endpoint=endpoint, tier=tier)

    def _snapshot(self, partitions: tuple[PartitionStatus, ...]) -> StatusSnapshot:
        engine = self._engine
        held, metadata = engine.hold.statistics(), engine.metadata.statistics()
        return StatusSnapshot(
            version=__version__,
            commit=self._commit,
            pid=os.getpid(),
            cluster_id=engine.identity.cluster_id,
            node_id=engine.identity.node_id,
            started_ms=self._started_ms,
            now_ms=engine.clock.now_ms(),
            not_ready=tuple(self.not_ready()),
            partitions=partitions,
            hold={
                "segments": held.segments,
                "bytes": held.bytes,
                "descriptors": held.descriptors,
                "unheld_segments": held.unheld_segments,
                "unheld_reason": held.unheld_reason,
                "log_dirs": [
                    {"path": str(each.log_dir), "mode": each.kind.value, "reason": each.reason}
                    for each in held.log_dirs
                ],
            },
            metadata={name: value for name, value in asdict(metadata).items() if isinstance(value, int)},
            log_dirs=tuple(self._manager.log_dirs()),
            leadership=engine.control.facts(),
            pipeline=self._parts.pipeline.facts(),
            own_logs=engine.logs.facts(),
            catalogue=self._parts.catalogue.facts(),
            drills=self._parts.drills.facts(partitions),
            endpoint=self._parts.endpoint.facts(),
            descriptors=self._ports.facts(),
            control=engine.control.control_facts(),
            push=self._parts.push.facts(),
            unprotected=worst_of(self._parts.unprotected.use()),
            outages=engine.services.outages(),
            totals=asdict(engine.metrics.totals()),
        )


def not_ready_causes(
    *,
    outages: Sequence[Outage],
    stopping: str,
    is_reconciled: bool,
    loading: Sequence[object],
    unknown_roles: str,
    unowned_tier: str,
    unserved: str = "",
    unreplicated: str = "",
) -> list[str]:
    """Return why the daemon is not ready; empty when it is.

    Args:
        outages: services that do not answer. The consequences of an outage are left out.
        stopping: why the daemon stops; empty while it does not.
        is_reconciled: every log dir was scanned completely once.
        loading: partitions whose metadata was never loaded yet; empty once all were.
        unknown_roles: why the roles of partitions are not known; empty when they are.
        unowned_tier: why the prefix in the store is not proven to be this daemon's; empty when it is.
        unserved: why clients cannot connect to the read endpoint; empty when they can, or there is none.
        unreplicated: why push replication does not work yet; empty when it does, or there is none.
    """
    out = {outage.service for outage in outages}
    causes = [outage.headline() for outage in outages]
    if stopping:
        causes.append(f"stopping: {stopping}")
    if not is_reconciled:
        causes.append("the log dirs have not been scanned completely yet")
    elif loading:
        causes.append(f"the metadata of {len(loading)} partitions is still being loaded: {_some(loading)}")
    if unknown_roles and "kafka" not in out:
        causes.append(unknown_roles)
    if unowned_tier and not out & {"object_store", "metadata_store"}:  # a claim needs both
        causes.append(f"the tier cannot be written: {unowned_tier}")
    if unserved and is_reconciled and not loading:
        causes.append(unserved)
    if unreplicated:
        causes.append(unreplicated)
    return causes


def _some(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
