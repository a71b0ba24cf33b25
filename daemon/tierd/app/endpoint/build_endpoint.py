"""The composition of an endpoint: access, handlers, groups and listeners over what it serves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tierd.app.endpoint.endpoint_partitions import EndpointPartitions
from tierd.app.endpoint.read_endpoint import EndpointParts, ReadEndpoint
from tierd.clock import Clock
from tierd.config import EndpointListenerSettings, KafkaEndpointSettings
from tierd.metadata import KeyValueStore, MetadataKeyFactory
from tierd.serve import (
    Authorizer,
    ConsumerGroups,
    CoordinationLimits,
    EndpointAccess,
    EndpointLimits,
    EndpointRecorder,
    KafkaEndpoint,
    ListenerPlan,
    Placement,
    RequestContext,
    answer_handlers,
    fetch_handlers,
    fetch_sessions,
)

if TYPE_CHECKING:  # at run time only where a connection to Kafka is configured
    from tierd.control import BrokerWatermarks


log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointContext:
    """Surroundings of an endpoint.

    Attributes:
        settings: of the endpoint.
        state_dir: has the file of the quarantine.
        rows: store of the groups.
        keys: of the cluster's rows.
        recorder: takes a record of every request.
        clock: time.
        is_short: says that descriptors run out.
        descriptors: limit of the process, of which the endpoint takes a part.
        are_groups_refused: no store of this process may be written: clients that commit get an error that they show.
    """

    settings: KafkaEndpointSettings
    state_dir: Path
    rows: KeyValueStore
    keys: MetadataKeyFactory
    recorder: EndpointRecorder
    clock: Clock
    is_short: Callable[[], bool]
    descriptors: int
    are_groups_refused: bool = False


async def build_endpoint(
    context: EndpointContext, partitions: EndpointPartitions, watermarks: "BrokerWatermarks | None"
) -> ReadEndpoint:
    """Build the endpoint that the settings describe; nothing listens yet.

    Raises:
        ListenError: certificate or key of the listeners cannot be used.
    """
    settings, clock = context.settings, context.clock
    access = await EndpointAccess.open(settings, state_dir=context.state_dir, clock=clock)
    groups = ConsumerGroups(
        context.rows,
        context.keys,
        Placement(partitions, listener=settings.listeners[0].name),
        CoordinationLimits.of(settings.groups),
        clock=clock,
    )
    authorizer: Authorizer = access.authorizer
    sessions = fetch_sessions()
    handlers = {
        **answer_handlers(partitions, authorizer, clock=clock),
        **fetch_handlers(partitions, authorizer, access.quotas, sessions, clock=clock),
        **groups.handlers(partitions, NoGroups(authorizer) if context.are_groups_refused else authorizer),
    }
    server = KafkaEndpoint(
        [_plan(listener, access) for listener in settings.listeners],
        handlers,
        limits=endpoint_limits(settings, descriptors=context.descriptors),
        quotas=access.quotas,
        recorder=context.recorder,
        clock=clock,
        is_short=context.is_short,
    )
    parts = EndpointParts(
        access=access, partitions=partitions, server=server, groups=groups, sessions=sessions, watermarks=watermarks
    )
    return ReadEndpoint(settings.listeners, parts)


def endpoint_limits(settings: KafkaEndpointSettings, *, descriptors: int) -> EndpointLimits:
    """Return the bounds by the settings, and by the limit of descriptors: most of them are for holds and copies.

    An eighth is for connections. As many more may be open for a moment, while threads send local segments.
    """
    connections, per_peer = settings.max_connections, settings.max_connections_per_peer
    if connections > descriptors // 8:
        connections = max(descriptors // 8, 1)
        per_peer = min(per_peer, max(connections // 2, 1))
        log.warning(
            "endpoint_connections_bounded",
            connections=connections,
            connections_per_peer=per_peer,
            remedy=f"raise the limit of open files to {8 * settings.max_connections}, or lower kafka.max_connections",
        )
    return EndpointLimits(
        connections=connections,
        connections_per_peer=per_peer,
        kept_files=min(256, descriptors // 32),
        request_bytes=settings.max_request_bytes,
        memory_bytes=settings.max_memory_bytes,
        idle_timeout_s=settings.idle_timeout_s,
    )


class NoGroups:
    """Authorizer that lets no client use a group: what they committed would be lost with this process."""

    def __init__(self, inner: Authorizer) -> None:
        """Leave every other question to ``inner``."""
        self._inner = inner

    def may_describe_topic(self, principal: str, topic: str) -> bool:
        """Return the answer of the rules."""
        return self._inner.may_describe_topic(principal, topic)

    def may_read_topic(self, principal: str, topic: str) -> bool:
        """Return the answer of the rules."""
        return self._inner.may_read_topic(principal, topic)

    def may_use_group(self, principal: str, group: str) -> bool:
        """Return False; clients show GROUP_AUTHORIZATION_FAILED."""
        return False

    def is_quarantined(self, context: RequestContext) -> bool:
        """Return the answer of the quarantine."""
        return self._inner.is_quarantined(context)


def _plan(listener: EndpointListenerSettings, access: EndpointAccess) -> ListenerPlan:
    certificates = access.certificates if listener.is_tls else None
    return ListenerPlan(
        name=listener.name,
        host=listener.host,
        port=listener.port,
        tls=certificates.latest if certificates is not None else None,
        logins=access.logins if listener.has_login else None,
    )
