"""The control plane: leadership and settings of topics, from the configuration, the cluster or MQTT."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pydantic import JsonValue

from tierd import __version__
from tierd.clock import Clock
from tierd.config import LeadershipSettings, MqttSettings, split_address
from tierd.control import LeadershipSource, StaticLeadership
from tierd.errors import ControlPlaneError, KafkaError, install_extra
from tierd.log import BrokerIdentity
from tierd.model import TopicIdPartition
from tierd.tasks import end_tasks
from tierd.telemetry import ControlUse, LeadershipUse

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import BrokerTopicConfigs, ControlIdentity, KafkaLeadership, MqttControl, MqttLeadership


_HEARING_TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Sources of leadership and of topics' settings.

    Attributes:
        leadership: of the partitions in the log dirs.
        topic_configs: the brokers' settings of topics; None where no connection to Kafka is configured.
        mqtt: presence, announcements and requests; None where no MQTT broker is configured.
        announced: the leadership with announcements of what is led here; None where none are wanted.
        followed: the leadership, where it comes from announcements.
        asked: the leadership, where brokers are asked for it.
    """

    leadership: "StaticLeadership | KafkaLeadership | MqttLeadership"
    topic_configs: "BrokerTopicConfigs | None" = None
    mqtt: "MqttControl | None" = None
    announced: LeadershipSource | None = None
    followed: "MqttLeadership | None" = None
    asked: "KafkaLeadership | None" = None

    @property
    def source(self) -> LeadershipSource:
        """Return the source of roles for the tiering."""
        return self.announced or self.leadership

    @property
    def leads(self) -> Callable[[TopicIdPartition], bool] | None:
        """Return the predicate of the partitions that this broker leads; None where the cluster tells leaders."""
        if isinstance(self.leadership, StaticLeadership):
            return self.leadership.leads
        return self.followed.leads if self.followed is not None else None

    @contextlib.asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        """Follow announcements of leaders while the context lasts, for a command that stands in for the daemon.

        Without leadership.source mqtt the context does nothing.
        """
        if self.mqtt is None or self.followed is None:
            yield
            return
        task = asyncio.create_task(self.mqtt.run({}), name="control plane")
        try:
            await self.mqtt.wait_until_heard(_HEARING_TIMEOUT_S)
            yield
        finally:
            await end_tasks([task])

    def topic_settings(self) -> Callable[[str], Mapping[str, str] | None] | None:
        """Return the lookup of a topic's settings on the brokers; None where no broker is asked."""
        return self.topic_configs.get if self.topic_configs is not None else None

    def not_ready(self) -> str:
        """Return why roles are not known yet; empty when they are known."""
        return "" if isinstance(self.leadership, StaticLeadership) else self.leadership.not_ready()

    def require_heard(self) -> None:
        """Require that roles were learned at least once; waits for nothing.

        Raises:
            TierError: the cluster never answered, or no announcement was heard: leaders are not known.
        """
        if not isinstance(self.leadership, StaticLeadership) and (failure := self.leadership.never_heard) is not None:
            raise failure

    def facts(self) -> dict[str, JsonValue]:
        """Return the status of leadership and of topics' settings."""
        settings_problem = self.topic_configs.problem if self.topic_configs is not None else ""
        if isinstance(self.leadership, StaticLeadership):
            return {"source": "static", "topic_settings_problem": settings_problem}
        statistics: dict[str, JsonValue] = asdict(self.leadership.statistics())
        return {**statistics, "topic_settings_problem": settings_problem}

    def use(self) -> LeadershipUse | None:
        """Return the statistics of leadership for the metrics; None where no broker is asked for leaders."""
        if self.asked is None:
            return None
        statistics = self.asked.statistics()
        return LeadershipUse(
            last_refresh_s=None if statistics.last_refresh_ms is None else statistics.last_refresh_ms / 1000,
            errors=statistics.errors,
            stale_answers=statistics.stale_answers,
            leaderless=statistics.roles.without_leader,
        )

    def control_use(self) -> ControlUse | None:
        """Return the statistics of MQTT for the metrics; None where no MQTT broker is configured."""
        if self.mqtt is None:
            return None
        statistics = self.mqtt.statistics()
        return ControlUse(
            is_connected=statistics.is_connected,
            reconnects=statistics.reconnects,
            stale_announcements=statistics.view.stale,
            publish_dropped={
                "too_large": statistics.queue.too_large,
                "queue_full": statistics.queue.queue_full,
                "denied": statistics.denied,
            },
            damaged_messages=statistics.damaged,
            peers_online=statistics.view.nodes_online,
            waiting_messages=statistics.queue.waiting,
        )

    def control_facts(self) -> dict[str, JsonValue]:
        """Return the status of MQTT; empty where no MQTT broker is configured."""
        if self.mqtt is None:
            return {}
        statistics = self.mqtt.statistics()
        return {"enabled": True, "reconnects": statistics.reconnects, **asdict(statistics)}

    def close(self) -> None:
        """Close the connections of the leadership source to the brokers."""
        if not isinstance(self.leadership, StaticLeadership):
            self.leadership.close()


def control_plane(
    settings: LeadershipSettings,
    identity: BrokerIdentity,
    *,
    clock: Clock,
    random: Callable[[], float],
    on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
    mqtt: "MqttControl | None" = None,
    announces: bool = False,
) -> ControlPlane:
    """Build the control plane that the settings ask for; nothing is connected yet.

    Args:
        settings: the source of leadership, and the connection to the brokers.
        identity: cluster and broker.
        clock: time.
        random: in [0, 1), for jitter.
        on_outcome: called after every round of questions to the brokers, with the error of a round without an answer.
        mqtt: the connection to the MQTT broker; None without one. Without it, source mqtt is as static: such a control
            plane is asked for settings of topics alone.
        announces: announce over ``mqtt`` what is led here.
    """
    topic_configs = _topic_configs(settings, identity, clock, random, on_outcome)
    announcing = mqtt if announces else None
    if settings.source == "mqtt" and mqtt is not None:
        from tierd.control import MqttLeadership  # noqa: PLC0415 - only when configured

        followed = MqttLeadership(mqtt, node_id=mqtt.state.identity.node_id)
        return ControlPlane(followed, topic_configs, mqtt, _announced(followed, announcing), followed=followed)
    if settings.source != "kafka" or settings.kafka is None:
        configured = StaticLeadership(settings.partitions)
        return ControlPlane(configured, topic_configs, mqtt, _announced(configured, announcing))
    from tierd.control import KafkaLeadership  # noqa: PLC0415 - only when configured

    asked = KafkaLeadership(
        settings.kafka,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        clock=clock,
        random=random,
        on_outcome=on_outcome,
    )
    return ControlPlane(asked, topic_configs, mqtt, _announced(asked, announcing), asked=asked)


def second_leadership(
    control: ControlPlane,
    settings: LeadershipSettings,
    identity: BrokerIdentity,
    *,
    clock: Clock,
    random: Callable[[], float],
) -> "StaticLeadership | KafkaLeadership | MqttLeadership":
    """Return another source of the same leadership, for a second consumer that observes partitions of its own."""
    if control.followed is not None and control.mqtt is not None:
        return type(control.followed)(control.mqtt, node_id=control.mqtt.state.identity.node_id)
    if control.asked is None or settings.kafka is None:
        return StaticLeadership(settings.partitions)
    return type(control.asked)(
        settings.kafka, cluster_id=identity.cluster_id, node_id=identity.node_id, clock=clock, random=random
    )


def mqtt_control(
    settings: MqttSettings, identity: "ControlIdentity", *, clock: Clock, random: Callable[[], float]
) -> "MqttControl":
    """Build the connection to the MQTT broker; nothing is connected yet.

    Raises:
        ControlPlaneError: the package for MQTT is not installed.
    """
    try:
        from tierd.control import MqttControl  # noqa: PLC0415 - only when configured
    except ImportError as error:
        raise ControlPlaneError("control.mqtt needs the package aiomqtt", remedy=install_extra("mqtt")) from error
    return MqttControl(settings, identity, clock=clock, random=random)


def control_identity(
    settings: MqttSettings, identity: BrokerIdentity, *, node_id: int, process_epoch: int, features: tuple[str, ...]
) -> "ControlIdentity":
    """Return the identity of this process on the control plane, as ``node_id``."""
    from tierd.control import ControlIdentity, PeerEndpoint  # noqa: PLC0415 - only when configured

    host, port = split_address(settings.endpoint) if settings.endpoint is not None else ("", 0)
    return ControlIdentity(
        cluster_id=identity.cluster_id,
        node_id=node_id,
        process_epoch=process_epoch,
        instance=uuid4().hex,
        started_at_ms=process_epoch,
        version=__version__,
        features=features,
        endpoint=PeerEndpoint(host=host, port=port) if host else None,
    )


def _topic_configs(
    settings: LeadershipSettings,
    identity: BrokerIdentity,
    clock: Clock,
    random: Callable[[], float],
    on_outcome: Callable[[KafkaError | None], None],
) -> "BrokerTopicConfigs | None":
    if settings.kafka is None:
        return None
    from tierd.control import BrokerTopicConfigs  # noqa: PLC0415 - only when configured

    return BrokerTopicConfigs(
        settings.kafka, cluster_id=identity.cluster_id, clock=clock, random=random, on_outcome=on_outcome
    )


def _announced(inner: LeadershipSource, mqtt: "MqttControl | None") -> LeadershipSource | None:
    """Return ``inner`` with announcements of what is led here; None without a place to announce it."""
    if mqtt is None:
        return None
    from tierd.control import AnnouncedLeadership  # noqa: PLC0415 - only when configured

    return AnnouncedLeadership(inner, mqtt, node_id=mqtt.state.identity.node_id)
