"""Who leads what, and how topics are kept: from the configuration alone, or from the cluster as well."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tierd.clock import Clock
from tierd.config import TierdConfig
from tierd.control import StaticLeadership
from tierd.errors import KafkaError
from tierd.log import BrokerIdentity
from tierd.telemetry import LeadershipUse

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import BrokerTopicConfigs, KafkaLeadership


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Both sources.

    Attributes:
        leadership: of the partitions in the log dirs.
        topic_configs: the brokers' settings of topics; None where no connection to Kafka is configured.
    """

    leadership: "StaticLeadership | KafkaLeadership"
    topic_configs: "BrokerTopicConfigs | None" = None

    def topic_settings(self) -> Callable[[str], Mapping[str, str] | None] | None:
        """What asks for a topic's settings; None where there is nobody to ask."""
        return self.topic_configs.get if self.topic_configs is not None else None

    def not_ready(self) -> str:
        """Why roles are not known yet; empty when they are."""
        return "" if isinstance(self.leadership, StaticLeadership) else self.leadership.not_ready()

    def require_heard(self) -> None:
        """Return when roles were learned at least once.

        Raises:
            KafkaError: the cluster never answered, so nobody knows what this broker leads.
        """
        if not isinstance(self.leadership, StaticLeadership) and (failure := self.leadership.never_heard) is not None:
            raise failure

    def facts(self) -> dict[str, JsonValue]:
        """What ``/status`` says of leadership and of topics' settings."""
        settings_problem = self.topic_configs.problem if self.topic_configs is not None else ""
        if isinstance(self.leadership, StaticLeadership):
            return {"source": "static", "topic_settings_problem": settings_problem}
        said = asdict(self.leadership.statistics())
        return {**said, "topic_settings_problem": settings_problem}

    def use(self) -> LeadershipUse | None:
        """What metrics say of leadership; None where nobody is asked."""
        if isinstance(self.leadership, StaticLeadership):
            return None
        said = self.leadership.statistics()
        return LeadershipUse(
            last_refresh_s=None if said.last_refresh_ms is None else said.last_refresh_ms / 1000,
            errors=said.errors,
            stale_answers=said.stale_answers,
            leaderless=said.roles.without_leader,
        )

    def close(self) -> None:
        """Let connections go."""
        if not isinstance(self.leadership, StaticLeadership):
            self.leadership.close()


def control_plane(
    config: TierdConfig,
    identity: BrokerIdentity,
    *,
    clock: Clock,
    random: Callable[[], float],
    on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
) -> ControlPlane:
    """Build what the configuration asks for; nothing is connected yet.

    ``on_outcome`` is told of every round of questions to the brokers: why none answered, or None.
    """
    kafka = config.leadership.kafka
    if kafka is None:
        return ControlPlane(StaticLeadership(config.leadership.partitions))
    from tierd.control import BrokerTopicConfigs, KafkaLeadership  # noqa: PLC0415 - only when configured

    topic_configs = BrokerTopicConfigs(
        kafka, cluster_id=identity.cluster_id, clock=clock, random=random, on_outcome=on_outcome
    )
    if config.leadership.source == "static":
        return ControlPlane(StaticLeadership(config.leadership.partitions), topic_configs)
    leadership = KafkaLeadership(
        kafka,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        clock=clock,
        random=random,
        on_outcome=on_outcome,
    )
    return ControlPlane(leadership, topic_configs)
