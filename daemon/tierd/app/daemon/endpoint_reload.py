"""EndpointReloader: SIGHUP of ``tierd serve`` puts rules of access, users, quotas and certificates in force."""

import asyncio
from collections.abc import Mapping

import structlog

from tierd.app.daemon.config_change import changed_keys
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.app.engine.deployment import Deployment
from tierd.config import KafkaEndpointSettings, TierdConfig, load_config
from tierd.errors import ConfigError

log = structlog.get_logger()

LIVE_SECTIONS = ("access", "quarantine", "quotas", "sasl", "tls")
"""Sections of ``kafka`` that take effect at once; every other key waits for a restart."""


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
