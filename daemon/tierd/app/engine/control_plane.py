"""The control plane: leadership and settings of topics, from the configuration or from the cluster."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tierd.clock import Clock
from tierd.config import LeadershipSettings
from tierd.control import StaticLeadership
from tierd.errors import KafkaError
from tierd.log import BrokerIdentity
from tierd.telemetry import LeadershipUse

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import BrokerTopicConfigs, KafkaLeadership


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Sources of leadership and of topics' settings.

    Attributes:
        leadership: of the partitions in the log dirs.
        topic_configs: the brokers' settings of topics; None where no connection to Kafka is configured.
    """

    leadership: "StaticLeadership | KafkaLeadership"
    topic_configs: "BrokerTopicConfigs | None" = None

    def topic_settings(self) -> Callable[[str], Mapping[str, str] | None] | None:
        """Return the lookup of a topic's settings on the brokers; None where no broker is asked."""
        return self.topic_configs.get if self.topic_configs is not None else None

    def not_ready(self) -> str:
        """Return why roles are not known yet; empty when they are known."""
        return "" if isinstance(self.leadership, StaticLeadership) else self.leadership.not_ready()

    def require_heard(self) -> None:
        """Require that roles were learned at least once; waits for nothing.

        Raises:
            KafkaError: the cluster never answered, so it is not known what this broker leads.
        """
        if not isinstance(self.leadership, StaticLeadership) and (failure := self.leadership.never_heard) is not None:
            raise failure

    def facts(self) -> dict[str, JsonValue]:
        """Return the status of leadership and of topics' settings."""
        settings_problem = self.topic_configs.problem if self.topic_configs is not None else ""
        if isinstance(self.leadership, StaticLeadership):
            return {"source": "static", "topic_settings_problem": settings_problem}
        statistics = asdict(self.leadership.statistics())
        return {**statistics, "topic_settings_problem": settings_problem}

    def use(self) -> LeadershipUse | None:
        """Return the statistics of leadership for the metrics; None where no broker is asked for leaders."""
        if isinstance(self.leadership, StaticLeadership):
            return None
        statistics = self.leadership.statistics()
        return LeadershipUse(
            last_refresh_s=None if statistics.last_refresh_ms is None else statistics.last_refresh_ms / 1000,
            errors=statistics.errors,
            stale_answers=statistics.stale_answers,
            leaderless=statistics.roles.without_leader,
        )

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
) -> ControlPlane:
    """Build the control plane that the settings ask for; nothing is connected yet.

    ``on_outcome`` is called after every round of questions to the brokers, with the error of a round without an answer.
    """
    kafka = settings.kafka
    if kafka is None:
        return ControlPlane(StaticLeadership(settings.partitions))
    from tierd.control import BrokerTopicConfigs, KafkaLeadership  # noqa: PLC0415 - only when configured

    topic_configs = BrokerTopicConfigs(
        kafka, cluster_id=identity.cluster_id, clock=clock, random=random, on_outcome=on_outcome
    )
    if settings.source == "static":
        return ControlPlane(StaticLeadership(settings.partitions), topic_configs)
    leadership = KafkaLeadership(
        kafka,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        clock=clock,
        random=random,
        on_outcome=on_outcome,
    )
    return ControlPlane(leadership, topic_configs)
