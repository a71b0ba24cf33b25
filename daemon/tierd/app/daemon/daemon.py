"""The running daemon: the root TaskGroup, its tasks, and its orderly stop.

::

    own the tier ──┐
    manager.run ───┤ vital: one that dies ends the daemon, exit code 1, after an orderly stop
    http, control ─┤
    watchdog ──────┘
    partition tasks: supervised one by one (task_supervisor.py); none of them ends anything
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Mapping

import structlog

from tierd import __version__
from tierd.app.commands.removal_verbs import removal_handlers
from tierd.app.daemon.copy_verbs import copy_handlers
from tierd.app.daemon.daemon_catalogue import DaemonCatalogue
from tierd.app.daemon.daemon_drills import DaemonDrills, new_daemon_drills
from tierd.app.daemon.daemon_endpoint import DaemonEndpoint, new_daemon_endpoint
from tierd.app.daemon.daemon_pages import DaemonPages
from tierd.app.daemon.daemon_push import DaemonPush, new_daemon_push
from tierd.app.daemon.daemon_status import DaemonStatus, WatchedParts
from tierd.app.daemon.descriptors import PortGates, raise_descriptor_limit
from tierd.app.daemon.disk_watch import DiskWatch
from tierd.app.daemon.peer_verbs import peer_handlers, peer_verbs
from tierd.app.daemon.reloader import Reloader, log_config_warnings
from tierd.app.daemon.stop_request import StopRequest, handled_signals
from tierd.app.daemon.systemd_notifier import SystemdNotifier, feed_watchdog
from tierd.app.daemon.task_supervisor import TaskSupervisor
from tierd.app.daemon.unprotected_watch import UnprotectedWatch
from tierd.app.engine.compose import Engine, compose
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.host_caches import fetching
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.app.engine.topic_policies import PolicyChanges
from tierd.app.services.owned_object_store import own_until_done
from tierd.app.spark.build_pipeline import build_pipeline, require_pipeline
from tierd.app.spark.daemon_pipeline import DaemonPipeline
from tierd.backoff import Backoff
from tierd.config import KafkaEndpointSettings
from tierd.errors import ForeignTierError, IdentityTakenError, ListenError, LogError, TierError
from tierd.serve import ControlServer, HttpServer
from tierd.telemetry import HostUse
from tierd.tiering import CopyTask, ExpirationTask, FetchService, PartitionRemover, PartitionTask, Tiering

log = structlog.get_logger()

STATUS_INTERVAL_S = 30.0
_STALL_FACTOR = 3  # a segment above 1 GiB has its deadline twice, and is checked before the deadline begins
_STALL_MARGIN_S = 300.0
_ABANDON_S = 10.0  # what a run takes to abandon what it began, once its job has stopped


async def run_until_stopped(deployment: Deployment, env: Mapping[str, str]) -> int:
    """Run until a signal or a fault ends it, and return the exit code.

    Raises:
        TierError: it could not start: state dir in use, metadata damaged, tier of another store, address taken.
    """
    raise_descriptor_limit()  # first: holds may take a share of the limit
    async with owned_state_dir(deployment.state_dir), compose(deployment) as engine:
        return await Daemon(engine, env, SystemdNotifier.from_environment(env)).run()


class Daemon:
    """Run of the composed parts, from the start to the orderly stop."""

    def __init__(self, engine: Engine, env: Mapping[str, str], notifier: SystemdNotifier) -> None:
        self._engine = engine
        self._config = engine.deployment.config
        self._notifier = notifier
        self._stop = StopRequest()
        self._policy_changes = PolicyChanges(engine.logs)
        self._reloader = Reloader(
            engine,
            env,
            notifier,
            on_topics=self._policy_changes.report,
            on_endpoint=self._follow_endpoint,
            on_push=self._follow_push,
        )
        self._started_ms = engine.clock.now_ms()
        self._failure: TierError | None = None
        self._ports = PortGates(engine.clock)
        self._disks = DiskWatch((*engine.deployment.log_dirs, engine.deployment.state_dir), clock=engine.clock)
        self._supervisor: TaskSupervisor
        self._tiering: Tiering
        self._pipeline: DaemonPipeline
        self._catalogue: DaemonCatalogue
        self._drills: DaemonDrills
        self._endpoint: DaemonEndpoint
        self._push: DaemonPush
        self._unprotected: UnprotectedWatch
        self._pages: DaemonPages
        self._status: DaemonStatus

    async def run(self) -> int:
        """Run until asked to stop, stop in order, and return the exit code.

        Raises:
            TierError: the fault that ended the run, where that fault has an exit code of its own.
        """
        with handled_signals(self._stop, self._reloader.ask):
            async with fetching(self._engine) as fetches, asyncio.TaskGroup() as group:
                self._supervisor = TaskSupervisor(
                    group,
                    clock=self._engine.clock,
                    random=self._engine.random,
                    progress_of=_progress,
                    stall_s=_STALL_FACTOR * self._config.copying.attempt_timeout_s + _STALL_MARGIN_S,
                )
                self._tiering = self._engine.new_tiering(self._supervisor)
                self._pipeline = await self._new_pipeline(group, fetches)
                self._catalogue = DaemonCatalogue(self._engine, self._config.catalogue, self._config.leadership)
                self._engine.metrics.sources.catalogue = self._catalogue.use
                self._drills = new_daemon_drills(self._engine, self._tiering.manager.status)
                self._engine.metrics.sources.drills = self._drills.use
                self._endpoint = await new_daemon_endpoint(
                    self._engine, self._tiering, fetches, is_short=self._ports.is_short
                )
                self._push = await new_daemon_push(self._engine, is_short=self._ports.is_short)
                self._unprotected = UnprotectedWatch(
                    self._tiering.replicas, self._push.at_risk, clock=self._engine.clock
                )
                self._pages = DaemonPages(
                    self._engine,
                    self._tiering,
                    push=self._push,
                    unprotected=self._unprotected,
                    remote=self._config.remote,
                    price_file=self._config.cost.price_file,
                )
                self._engine.metrics.sources.push = self._push.use
                self._engine.metrics.sources.unprotected = self._unprotected.use
                self._status = DaemonStatus(
                    self._engine,
                    self._tiering.manager,
                    parts=WatchedParts(
                        self._pipeline,
                        self._catalogue,
                        self._drills,
                        self._endpoint,
                        self._push,
                        self._unprotected,
                        self._pages,
                    ),
                    ports=self._ports,
                    stop=self._stop,
                    is_file_rejected=lambda: self._reloader.is_rejected,
                    started_ms=self._started_ms,
                )
                self._engine.metrics.sources.host = self._host_use
                async with self._serving(group):
                    await self._run_until_asked(group)
        if self._failure is not None:
            raise self._failure
        log.info("stopped", exit_code=self._stop.exit_code)
        return self._stop.exit_code

    def _host_use(self) -> HostUse:
        return HostUse(
            is_ready=not self._status.not_ready(),
            offline={str(log_dir.path): bool(log_dir.problem) for log_dir in self._tiering.manager.log_dirs()},
            disks=self._disks.uses(),
        )

    async def _new_pipeline(self, group: asyncio.TaskGroup, fetches: FetchService) -> DaemonPipeline:
        await require_pipeline(self._engine)
        pipeline = build_pipeline(self._engine, self._tiering, fetches)
        self._engine.metrics.sources.pipeline = pipeline.scheduler.statistics
        return DaemonPipeline(pipeline, group, enabled=self._config.pipeline.enabled)

    @contextlib.asynccontextmanager
    async def _serving(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        http = HttpServer(
            host=self._config.http.host,
            port=self._config.http.port,
            metrics=self._engine.metrics.render,
            stalled=self._supervisor.stalled,
            not_ready=self._status.not_ready,
            sources=self._pages.sources(self._status.current),
            gate=self._ports.http,
            clock=self._engine.clock,
        )
        control = ControlServer(
            self._config.state_dir,
            (
                *copy_handlers(self._tiering.manager, self._status.current),
                *removal_handlers(self._engine, self._tiering),
                *self._pipeline.handlers(),
                *self._endpoint.handlers(),
                *peer_verbs(self._engine.control.mqtt),
            ),
            gate=self._ports.control,
            clock=self._engine.clock,
        )
        async with http.listening(group) as url, control.listening(group):
            log.info("started", version=__version__, pid=os.getpid(), status=url, state_dir=str(self._config.state_dir))
            log_config_warnings(self._config)
            yield

    async def _run_until_asked(self, group: asyncio.TaskGroup) -> None:
        pipeline = self._vital(group, "pipeline", self._pipeline.run())
        endpoint = self._vital(group, "read endpoint", self._endpoint.run(self._status.wait_until_loaded))
        push = self._vital(group, "push replication", self._push.run())
        vital = [
            pipeline,
            endpoint,
            push,
            self._vital(group, "manager", self._tiering.manager.run()),
            self._vital(group, "ownership", self._own_tier()),
            self._vital(group, "reload", self._reloader.run(self._tiering, status_line=self._status.line)),
            self._vital(group, "policies", self._follow_policies()),
            self._vital(group, "catalogue", self._catalogue.run(self._status.wait_until_loaded)),
            self._vital(group, "drills", self._drills.run()),
            self._vital(group, "usage", self._keep_usage()),
            self._vital(group, "unprotected records", self._unprotected.run()),
            self._vital(group, "disks", self._disks.run()),
            self._vital(group, "samples for the pages", self._pages.run()),
            self._vital(group, "readiness", self._report_readiness()),
            self._vital(group, "services", self._ask_services()),
            self._vital(group, "control plane", self._tell_peers()),
            self._vital(
                group,
                "watchdog",
                feed_watchdog(self._notifier, self._supervisor.stalled, clock=self._engine.clock),
            ),
        ]
        try:
            await self._stop.asked.wait()
            await self._stop_in_order(pipeline, endpoint, push)
        finally:
            for task in vital:
                task.cancel()
            await asyncio.wait(vital)

    async def _stop_in_order(
        self, pipeline: asyncio.Task[None], endpoint: asyncio.Task[None], push: asyncio.Task[None]
    ) -> None:
        """Begin no pass, let running passes end until the deadline or a second signal, then cancel them.

        A run of the pipeline is ended meanwhile, and has the time that its job may take to stop. Clients of the read
        endpoint get the answers that are under way. Standbys are told that their sessions end.
        """
        self._notifier.stopping()
        self._tiering.manager.stop_intake()
        self._pipeline.stop()
        self._endpoint.stop()
        self._push.stop()
        running, timeout_s = self._supervisor.running_passes, self._config.shutdown_timeout_s
        log.info("stopping", reason=self._stop.reason, running_copies=running, timeout_s=timeout_s)
        run_timeout_s = max(timeout_s, self._config.pipeline.stop_timeout_s + _ABANDON_S)
        draining = asyncio.create_task(self._supervisor.drain(timeout_s), name="drain")
        run_ending = asyncio.create_task(asyncio.wait({pipeline}, timeout=run_timeout_s), name="end of a run")
        serving_ending = asyncio.create_task(asyncio.wait({endpoint, push}), name="end of serving")
        hurried = asyncio.create_task(self._stop.at_once.wait(), name="second signal")
        waits: tuple[asyncio.Task[object], ...] = (draining, run_ending, serving_ending, hurried)
        try:
            for ending in waits[:3]:
                await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        if draining.cancelled() or not draining.result():
            log.warning("copies_cancelled", remedy="they begin anew at the next start; nothing is lost")
        await self._supervisor.drain(0)

    def _vital(self, group: asyncio.TaskGroup, name: str, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return group.create_task(self._watched(name, work), name=name)

    async def _watched(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run vital work; when it fails, the daemon stops in order."""
        try:
            await work
        except (ForeignTierError, IdentityTakenError, ListenError, LogError) as error:
            self._failure = error
            self._stop.ask(str(error), exit_code=1)
        except Exception:
            log.exception("vital_task_failed", task=name)
            self._stop.ask(f"{name} failed", exit_code=1)

    async def _follow_endpoint(self, settings: KafkaEndpointSettings) -> None:
        await self._endpoint.follow(settings)

    def _follow_push(self) -> None:
        self._push.follow()

    async def _own_tier(self) -> None:
        engine = self._engine
        await own_until_done(engine.store, clock=engine.clock, random=engine.random, backoff=Backoff())

    async def _follow_policies(self) -> None:
        """Apply changes of topics, in the file or on the brokers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._policy_changes.run(self._tiering.manager), name="apply policies")
            if (configs := self._engine.control.topic_configs) is not None:
                configs.on_change(self._policy_changes.report)
                group.create_task(configs.run(), name="topic settings")

    async def _ask_services(self) -> None:
        engine = self._engine
        await engine.services.run({"object_store": engine.store.check, "metadata_store": engine.metadata.check_store})

    async def _tell_peers(self) -> None:
        """Stay in touch with other daemons over MQTT, and answer their requests; ends at once where that is off."""
        mqtt = self._engine.control.mqtt
        if mqtt is not None:
            patience_s = self._config.control.mqtt.request_timeout_s / 2
            await mqtt.run(peer_handlers(self._tiering.manager, self._status.current, patience_s=patience_s))

    async def _keep_usage(self) -> None:
        await self._engine.usage.run(lambda: self._engine.stored_bytes(self._tiering.manager))

    async def _report_readiness(self) -> None:
        """Report readiness to systemd once all log dirs were scanned and all partitions loaded, then new statuses."""
        await self._status.wait_until_loaded()
        summary = self._status.line()
        self._notifier.ready(summary)
        log.info("ready", summary=summary)
        while self._notifier.is_heard:  # without a reader the line is not worth its cost: it reads every partition
            await self._engine.clock.sleep(STATUS_INTERVAL_S)
            if (now := self._status.line()) != summary:
                summary = now
                self._notifier.status(summary)


def _progress(task: PartitionTask) -> object:
    """Return a value that changes while a task makes progress. A task that waits for a slot is not stalled."""
    if isinstance(task, ExpirationTask | PartitionRemover):
        return task.progress
    if not isinstance(task, CopyTask):
        return None
    return object() if task.state.reason.startswith("queued") else task.state
