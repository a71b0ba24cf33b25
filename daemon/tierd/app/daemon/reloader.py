"""Reloader: reads the configuration again after SIGHUP. A valid file changes the live keys, another one nothing."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

import structlog

from tierd.app.daemon.config_change import changed_keys, merged
from tierd.app.daemon.systemd_notifier import SystemdNotifier
from tierd.app.engine.compose import Engine
from tierd.config import KafkaEndpointSettings, TierdConfig, config_warnings, load_config
from tierd.errors import ConfigError
from tierd.telemetry import configure_logging
from tierd.tiering import Tiering

log = structlog.get_logger()


def log_config_warnings(config: TierdConfig) -> None:
    """Log each setting of ``config`` that is questionable, in a line of its own."""
    for warning in config_warnings(config):
        log.warning("config_questionable", key=warning.key, problem=warning.problem, remedy=warning.remedy)


class Reloader:
    """Reader of changed configurations, one reload at a time; requests that arrive meanwhile count as one."""

    def __init__(
        self,
        engine: Engine,
        env: Mapping[str, str],
        notifier: SystemdNotifier,
        *,
        on_topics: Callable[[], None],
        on_endpoint: Callable[[KafkaEndpointSettings], Awaitable[None]] | None = None,
        on_push: Callable[[], None] = lambda: None,
    ) -> None:
        """Reload nothing yet.

        Args:
            engine: its settings are replaced, its configuration file is read again.
            env: the environment variables that the file may name.
            notifier: reports to systemd that a reload begins and ends.
            on_topics: is called when the tiered topics, or their policies, have changed.
            on_endpoint: takes changed settings of the read endpoint; None without one.
            on_push: is called when settings of push replication have changed.
        """
        self._engine = engine
        self._env = env
        self._notifier = notifier
        self._on_topics = on_topics
        self._on_endpoint = on_endpoint
        self._on_push = on_push
        self.is_rejected = False  # the file, when it was read last
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Ask for a reload; returns at once."""
        self._asked.set()

    async def run(self, tiering: Tiering, *, status_line: Callable[[], str]) -> None:
        """Reload whenever asked, until cancelled.

        Args:
            tiering: receives the new settings.
            status_line: returns the line that systemd shows when a reload has ended.
        """
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._notifier.reloading(monotonic_s=self._engine.clock.monotonic_s())
            await self._reload(tiering)
            self._notifier.ready(status_line())

    async def _reload(self, tiering: Tiering) -> None:
        try:
            wanted = await asyncio.to_thread(load_config, self._engine.deployment.config_file, self._env)
        except ConfigError as error:
            self._refuse(error)
            return
        self.is_rejected = False
        settings = self._engine.settings
        change = changed_keys(settings.config, wanted)
        settings.config = merged(settings.config, wanted)
        await self._apply(tiering, settings.config, change.live)
        self._engine.metrics.config_reloaded(success=True)
        log.info("config_reloaded", changed=list(change.live))
        if change.after_restart:
            log.warning("config_needs_restart", keys=list(change.after_restart))
        log_config_warnings(settings.config)

    def _refuse(self, error: ConfigError) -> None:
        for fault in error.faults:
            log.error("config_fault", fault=str(fault))
        log.error("config_reload_failed", remedy="the old settings stay in force; " + error.remedy)
        self._engine.metrics.config_reloaded(success=False)
        self.is_rejected = True

    async def _apply(self, tiering: Tiering, config: TierdConfig, keys: tuple[str, ...]) -> None:
        configure_logging(format=config.logging.format, level=config.logging.level, stream=sys.stderr)
        tiering.capacity.resize(copies=config.copying.concurrency, deletions=config.expire.concurrency)
        if any(key.startswith("topics.") for key in keys):
            self._on_topics()
            await tiering.manager.sync([])  # scans the log dirs with the new patterns, and waits for no copy
        if self._on_endpoint is not None and any(key.startswith("kafka.") for key in keys):
            await self._on_endpoint(config.kafka)
        if any(key.startswith("push.") for key in keys):
            self._on_push()
