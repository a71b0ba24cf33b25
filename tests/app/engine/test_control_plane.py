"""Source of leadership from the configuration, and its state in readiness, status and metrics."""

from typing import Literal
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tierd.app.engine.control_plane import ControlPlane, control_plane, second_leadership
from tierd.config import KafkaConnectionSettings, LeadershipSettings
from tierd.control import KafkaLeadership, StaticLeadership
from tierd.errors import KafkaUnreachableError
from tierd.log import BrokerIdentity
from tierd.model import TopicIdPartition
from tierd.telemetry import Metrics

NOBODY = KafkaConnectionSettings(bootstrap_servers=("127.0.0.1:1",))


def planned(leadership: LeadershipSettings) -> ControlPlane:
    return control_plane(leadership, BrokerIdentity("cluster", 1), clock=FakeClock(), random=lambda: 0.0)


def test_static_leadership_is_ready_without_a_cluster() -> None:
    plane = planned(LeadershipSettings())

    assert isinstance(plane.leadership, StaticLeadership)
    assert plane.topic_settings() is None
    assert plane.not_ready() == ""
    assert plane.use() is None
    assert plane.facts()["source"] == "static"
    plane.require_heard()
    plane.close()


def test_kafka_connection_serves_topic_settings_with_static_leadership() -> None:
    plane = planned(LeadershipSettings(kafka=NOBODY))

    assert isinstance(plane.leadership, StaticLeadership)
    assert plane.topic_configs is not None


async def test_missing_answer_of_the_cluster_is_in_readiness_metrics_and_errors() -> None:
    plane = planned(LeadershipSettings(source="kafka", kafka=NOBODY))
    assert isinstance(plane.leadership, KafkaLeadership)
    assert "not been asked for yet" in plane.not_ready()
    plane.require_heard()

    await plane.leadership.refresh_once()

    assert "cannot connect" in plane.not_ready()
    facts, use = plane.facts(), plane.use()
    assert facts["errors"] == 1
    assert "cannot connect" in str(facts["last_error"])
    assert use is not None
    assert (use.errors, use.last_refresh_s) == (1, None)
    metrics = Metrics(version="1", clock=FakeClock())
    metrics.sources.leadership = plane.use
    assert b"tierd_leadership_errors_total 1.0" in metrics.render()[0]
    with pytest.raises(KafkaUnreachableError):
        plane.require_heard()
    plane.close()


@pytest.mark.parametrize("source", ["static", "kafka"])
async def test_second_consumer_has_a_source_of_the_same_kind_and_of_its_own(source: Literal["static", "kafka"]) -> None:
    settings = LeadershipSettings(source=source, kafka=NOBODY, partitions=("orders-.*",))
    plane = planned(settings)

    second = second_leadership(plane, settings, BrokerIdentity("cluster", 1), clock=FakeClock(), random=lambda: 0.0)

    assert type(second) is type(plane.leadership)
    assert second is not plane.leadership
    if isinstance(second, StaticLeadership):
        assert not second.leads(TopicIdPartition(UUID(int=1), "payments", 0))
    else:
        second.close()
    plane.close()
