"""``tierd serve``: the read endpoint as a process of its own, on a host without daemon and broker."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

import structlog

from tierd import __version__
from tierd.app.daemon.config_change import changed_keys
from tierd.app.daemon.descriptors import PortGates, descriptor_limit, raise_descriptor_limit
from tierd.app.daemon.stop_request import StopRequest, handled_signals
from tierd.app.daemon.systemd_notifier import SystemdNotifier
from tierd.app.endpoint.bucket_rows import BucketRows
from tierd.app.endpoint.build_endpoint import EndpointContext
from tierd.app.endpoint.endpoint_partitions import EndpointIdentity
from tierd.app.endpoint.endpoint_watch import RequestMetrics
from tierd.app.endpoint.listed_replicas import ListedReplicas
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.app.endpoint.served_topology import shown_settings
from tierd.app.endpoint.tier_endpoint import ServedTier, TierEndpoint, tier_endpoint
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import fetch_service, reading_use
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.app.engine.topic_policies import TopicPolicies
from tierd.app.restore.restore_source import SourceRequest, read_bucket
from tierd.app.restore.source_reader import SourceStores, source_stores
from tierd.clock import Clock, SystemClock
from tierd.config import KafkaEndpointSettings, TierdConfig, load_config
from tierd.control import StaticLeadership
from tierd.errors import ConfigError, TierError
from tierd.metadata import KeyValueStore, MemoryKeyValueStore
from tierd.serve import (
    STATUS,
    ControlServer,
    HttpServer,
    PageSources,
    StatusAnswer,
    StatusRequest,
    StatusSnapshot,
    quarantine_handlers,
)
from tierd.telemetry import Metrics
from tierd.tiering import FetchService

log = structlog.get_logger()

LIVE_SECTIONS = ("access", "quarantine", "quotas", "sasl", "tls")
"""Sections of ``kafka`` that take effect at once; every other key waits for a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Choices of one process.

    Attributes:
        endpoint: settings with at least one listener.
        source: the tier, and the place of its metadata.
        is_final: the cluster writes no more, so that the end of the tier is the end of each log.
    """

    endpoint: KafkaEndpointSettings
    source: SourceRequest
    is_final: bool


async def serve_until_stopped(deployment: Deployment, request: ServeRequest, env: Mapping[str, str]) -> int:
    """Serve the tier until a signal or a fault ends it, and return the exit code.

    Raises:
        TierError: it could not start: state dir in use, tier not found, address taken.
    """
    raise_descriptor_limit()
    clock = SystemClock()
    metrics = Metrics(version=__version__, clock=clock)
    async with (
        owned_state_dir(deployment.state_dir),
        source_stores(deployment, request.source, clock=clock, on_progress=_log_progress) as source,
        _group_rows(deployment) as group_rows,
        fetch_service(
            deployment.config,
            source.stores.stored.objects,
            source.stores.new_storage,
            recorder=metrics,
            clock=clock,
            is_daemon=True,
        ) as fetches,
    ):
        metrics.sources.reading = lambda: reading_use(fetches.statistics())
        server = TierServer(deployment, request, source, metrics=metrics, clock=clock)
        return await server.run(fetches, group_rows, env)


class TierServer:
    """Run of one process, from open stores to the orderly stop."""

    def __init__(
        self,
        deployment: Deployment,
        request: ServeRequest,
        source: SourceStores,
        *,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        """Start nothing yet."""
        self._deployment = deployment
        self._config = deployment.config
        self._request = request
        self._source = source
        self._metrics = metrics
        self._clock = clock
        self._stop = StopRequest()
        self._ports = PortGates(clock)
        self._started_ms = clock.now_ms()
        self._failure: TierError | None = None
        self._rows: KeyValueStore = source.stores.stored.rows

    async def run(self, fetches: FetchService, group_rows: KeyValueStore | None, env: Mapping[str, str]) -> int:
        """Serve until asked to stop, and return the exit code.

        Raises:
            TierError: the fault that ended the run.
        """
        if self._source.is_from_bucket:
            self._rows = BucketRows(self._rows, self._fill, clock=self._clock)
        served = await self._opened(fetches, group_rows)
        self._metrics.sources.endpoint = served.watch.use
        reloader = EndpointReloader(self._deployment, env, served.endpoint, self._request.endpoint)
        notifier = SystemdNotifier.from_environment(env)
        with handled_signals(self._stop, reloader.ask):
            async with asyncio.TaskGroup() as group, self._ports_open(group, served):
                serving = group.create_task(self._serve(served), name="read endpoint")
                background = [
                    group.create_task(served.replicas.watch(served.watermarks.written), name="log dirs"),
                    group.create_task(reloader.run(), name="reload"),
                    group.create_task(self._report_ready(served, notifier), name="readiness"),
                ]
                if isinstance(self._rows, BucketRows):
                    background.append(group.create_task(self._rows.refresh(), name="read the bucket"))
                await self._stop.asked.wait()
                notifier.stopping()
                served.endpoint.stop()
                await asyncio.wait({serving})
                for task in background:
                    task.cancel()
        if self._failure is not None:
            raise self._failure
        log.info("stopped", exit_code=self._stop.exit_code)
        return self._stop.exit_code

    async def _opened(self, fetches: FetchService, group_rows: KeyValueStore | None) -> TierEndpoint:
        config, source, endpoint = self._config, self._source, self._request.endpoint
        node_id = max(source.identity.node_id, 0)
        policies = TopicPolicies(lambda: config.topics, None)
        leadership = StaticLeadership(config.leadership.partitions)
        tier = ServedTier(
            rows=self._rows,
            replicas=ListedReplicas(
                source.log_dirs,
                broker_id=node_id,
                is_led=leadership.leads if config.leadership.source == "static" else lambda _: False,
                wants=config.topics.wants,
                clock=self._clock,
            ),
            log_dirs=source.log_dirs,
            wants=config.topics.wants,
            settings_of=lambda topic: shown_settings(policies(topic)),
            strict_kafka_compat=config.metadata.strict_kafka_compat,
            is_final=self._request.is_final,
        )
        identity = EndpointIdentity(
            cluster_id=endpoint.endpoint_cluster_id(source.identity.cluster_id),
            node_id=node_id if endpoint.node_id is None else endpoint.node_id,
            broker_id=node_id,
            rack=endpoint.rack,
        )
        context = EndpointContext(
            settings=endpoint,
            state_dir=config.state_dir,
            rows=group_rows or MemoryKeyValueStore(),
            keys=source.stores.stored.row_keys,
            recorder=RequestMetrics(self._metrics),
            clock=self._clock,
            is_short=self._ports.is_short,
            descriptors=descriptor_limit(),
            are_groups_refused=group_rows is None,
        )
        return await tier_endpoint(tier, identity, fetches, context)

    async def _fill(self, rows: KeyValueStore) -> None:
        await read_bucket(
            self._deployment,
            replace(self._source.stores.stored, rows=rows),
            accepts_unauthenticated=self._request.source.accepts_unauthenticated,
            clock=self._clock,
            on_progress=lambda _: None,
        )

    async def _serve(self, served: TierEndpoint) -> None:
        """Serve until the stop; when that fails, the process stops."""
        try:
            await served.endpoint.run(served.replicas.refresh)
        except TierError as error:
            self._failure = error
            self._stop.ask(str(error), exit_code=1)
        except Exception:
            log.exception("vital_task_failed", task="read endpoint")
            self._stop.ask("read endpoint failed", exit_code=1)

    async def _report_ready(self, served: TierEndpoint, notifier: SystemdNotifier) -> None:
        await served.endpoint.wait_until_listening()
        notifier.ready("serving the tier")
        log.info("ready")

    @contextlib.asynccontextmanager
    async def _ports_open(self, group: asyncio.TaskGroup, served: TierEndpoint) -> AsyncIterator[None]:
        """Open the HTTP port and the control socket."""

        async def status() -> StatusSnapshot:
            return await self._snapshot(served)

        async def report_status(_request: StatusRequest) -> StatusAnswer:
            told = (await status()).to_json()
            return StatusAnswer.model_validate({name: value for name, value in told.items() if value != {}})

        http = HttpServer(
            host=self._config.http.host,
            port=self._config.http.port,
            metrics=self._metrics.render,
            stalled=lambda: None,
            not_ready=lambda: self._not_ready(served),
            sources=PageSources(status=status, whose=f"cluster {self._source.identity.cluster_id}"),
            gate=self._ports.http,
            clock=self._clock,
        )
        control = ControlServer(
            self._config.state_dir,
            (STATUS.handled_by(report_status), *quarantine_handlers(served.endpoint.parts.access.quarantine)),
            gate=self._ports.control,
            clock=self._clock,
        )
        async with http.listening(group) as url, control.listening(group):
            log.info("started", version=__version__, pid=os.getpid(), status=url)
            yield

    def _not_ready(self, served: TierEndpoint) -> list[str]:
        causes = [served.endpoint.not_ready] if served.endpoint.not_ready else []
        return [f"stopping: {self._stop.reason}"] if self._stop.asked.is_set() else causes

    async def _snapshot(self, served: TierEndpoint) -> StatusSnapshot:
        return StatusSnapshot(
            version=__version__,
            pid=os.getpid(),
            cluster_id=self._source.identity.cluster_id,
            node_id=self._source.identity.node_id,
            started_ms=self._started_ms,
            now_ms=self._clock.now_ms(),
            not_ready=tuple(self._not_ready(served)),
            partitions=(),
            log_dirs=(),
            hold={},
            metadata={},
            endpoint=await served.watch.facts_with_lag(),
            descriptors=self._ports.facts(),
        )


@contextlib.asynccontextmanager
async def _group_rows(deployment: Deployment) -> AsyncIterator[KeyValueStore | None]:
    """Open the metadata store for the commits of groups; None where this process cannot write it."""
    async with contextlib.AsyncExitStack() as stack:
        rows: KeyValueStore | None = None
        try:
            rows = await stack.enter_async_context(deployment.metadata_store(read_only=False))
        except TierError as error:
            log.warning(
                "groups_refused",
                problem=f"commits of consumer groups cannot be kept: {error}",
                remedy="let this process write the metadata store; clients that assign partitions themselves can read",
            )
        yield rows


def _log_progress(text: str) -> None:
    log.info("starting", step=text)


class EndpointReloader:
    """Reader of a changed configuration, for a process that serves and does nothing else."""

    def __init__(
        self,
        deployment: Deployment,
        env: Mapping[str, str],
        endpoint: ReadEndpoint,
        settings: KafkaEndpointSettings,
    ) -> None:
        """Reload nothing yet; ``settings`` are in force."""
        self._deployment = deployment
        self._env = env
        self._endpoint = endpoint
        self._settings = settings
        self._read = deployment.config
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Ask for a reload; returns at once."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever asked, until cancelled. A file with faults changes nothing."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                wanted = await asyncio.to_thread(load_config, self._deployment.config_file, self._env)
            except ConfigError as error:
                _report(error)
            else:
                await self._apply(wanted)

    async def _apply(self, wanted: TierdConfig) -> None:
        change = changed_keys(self._read, wanted)
        self._read = wanted
        live = {name: getattr(wanted.kafka, name) for name in LIVE_SECTIONS}
        self._settings = self._settings.model_copy(update=live)
        await self._endpoint.follow(self._settings)
        log.info("config_reloaded", changed=[key for key in change.live if key.startswith("kafka.")])
        later = [key for key in (*change.live, *change.after_restart) if not _is_live(key)]
        if later:
            log.warning("config_needs_restart", keys=later)


def _is_live(key: str) -> bool:
    return key.startswith(tuple(f"kafka.{name}" for name in LIVE_SECTIONS))


def _report(error: ConfigError) -> None:
    for fault in error.faults:
        log.error("config_fault", fault=str(fault))
    log.error("config_reload_failed", remedy="the old settings stay in force; " + error.remedy)
