"""DaemonEndpoint: the read endpoint as a part of the daemon; without listeners it does nothing."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tierd.app.daemon.descriptors import descriptor_limit
from tierd.app.engine.compose import Engine
from tierd.config import KafkaEndpointSettings
from tierd.errors import RefusedError
from tierd.serve import HOLD_ENDPOINT, RELEASE_ENDPOINT, QuarantineAnswer, QuarantineRequest, VerbHandler
from tierd.tiering import FetchService, Tiering

if TYPE_CHECKING:  # at run time only where there are listeners: the modules of Kafka's protocol take 27 MB
    from tierd.app.endpoint.endpoint_watch import EndpointWatch
    from tierd.app.endpoint.read_endpoint import ReadEndpoint


class DaemonEndpoint:
    """The endpoint of a daemon, or none."""

    def __init__(self, opened: "tuple[ReadEndpoint, EndpointWatch] | None") -> None:
        self._endpoint = opened[0] if opened is not None else None
        self._watch = opened[1] if opened is not None else None

    @property
    def not_ready(self) -> str:
        """Return why clients cannot connect; empty when they can, and where there is no endpoint."""
        return self._endpoint.not_ready if self._endpoint is not None else ""

    async def run(self, loaded: Callable[[], Awaitable[None]]) -> None:
        """Serve until ``stop``; ``loaded`` returns when the partitions of this host are known.

        Raises:
            ListenError: an address cannot be bound.
        """
        if self._endpoint is not None:
            await self._endpoint.run(loaded)

    def stop(self) -> None:
        """Let clients have the answers that are under way, and end."""
        if self._endpoint is not None:
            self._endpoint.stop()

    async def follow(self, settings: KafkaEndpointSettings) -> None:
        """Take the settings of a reload."""
        if self._endpoint is not None:
            await self._endpoint.follow(settings)

    def facts(self) -> Mapping[str, JsonValue]:
        """Return the section of the status, without the groups; empty where there is no endpoint."""
        return self._watch.facts() if self._watch is not None else {}

    async def facts_with_lag(self) -> Mapping[str, JsonValue]:
        """Return the section of the status; empty where there is no endpoint."""
        return await self._watch.facts_with_lag() if self._watch is not None else {}

    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the handlers of the verbs that concern the quarantine."""
        if self._endpoint is None:
            return RELEASE_ENDPOINT.handled_by(_refuse), HOLD_ENDPOINT.handled_by(_refuse)
        from tierd.serve import quarantine_handlers  # noqa: PLC0415 - as above

        return quarantine_handlers(self._endpoint.parts.access.quarantine)


async def new_daemon_endpoint(
    engine: Engine, tiering: Tiering, fetches: FetchService, *, is_short: Callable[[], bool]
) -> DaemonEndpoint:
    """Build the endpoint if the configuration has listeners, and let the metrics watch it; nothing listens yet.

    Raises:
        ListenError: certificate or key of the listeners cannot be used.
    """
    if not engine.settings.config.kafka.is_enabled:
        return DaemonEndpoint(None)
    from tierd.app.endpoint.engine_endpoint import engine_endpoint  # noqa: PLC0415 - as above

    endpoint, watch = await engine_endpoint(engine, tiering, fetches, is_short=is_short, descriptors=descriptor_limit())
    engine.metrics.sources.endpoint = watch.use
    return DaemonEndpoint((endpoint, watch))


async def _refuse(_request: QuarantineRequest) -> QuarantineAnswer:
    raise RefusedError("the read endpoint is off", remedy="set kafka.listeners, and restart tierd")
