"""EndpointWatch: the endpoint in metrics and status."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from tests.app.endpoint.test_endpoint_partitions import Setup, setup
from tests.app.endpoint.test_read_endpoint import endpoint
from tests.fakes.clock import FakeClock
from tierd.app.endpoint.endpoint_watch import EndpointWatch, RequestMetrics
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.serve import GroupStatistics, RequestRecord
from tierd.serve.control_answers import EndpointSummary
from tierd.serve.kafka.endpoint_statistics import RequestOutcome
from tierd.serve.kafka.fetching.fetch_session_cache import FetchSessionStatistics
from tierd.serve.kafka.groups.coordination.group_statistics import GroupsStatistics
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.telemetry import Metrics

__all__ = ["endpoint", "setup"]


@pytest.fixture
def watch(endpoint: ReadEndpoint, setup: Setup) -> EndpointWatch:
    return EndpointWatch(endpoint, setup.host.watermarks)


async def listening(endpoint: ReadEndpoint) -> "asyncio.Task[None]":
    async def loaded() -> None:
        return None

    run = asyncio.create_task(endpoint.run(loaded))
    async with asyncio.timeout(10):
        await endpoint.wait_until_listening()
    return run


async def test_status_names_the_listeners_once_they_listen(endpoint: ReadEndpoint, watch: EndpointWatch) -> None:
    before = EndpointSummary.model_validate(watch.facts())
    assert before.not_ready == "the read endpoint does not listen yet"
    run = await listening(endpoint)
    after = EndpointSummary.model_validate(await watch.facts_with_lag())
    assert (after.not_ready, list(after.listeners), after.topics) == ("", ["PLAINTEXT"], 1)
    assert after.watermark_source == "checkpoint"
    endpoint.stop()
    await run
    assert watch.facts()["not_ready"]


async def test_lag_is_the_distance_from_the_commits_to_the_ends_that_are_known(
    endpoint: ReadEndpoint, watch: EndpointWatch, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_offset = setup.writers[0].end_offset
    topic_id = setup.writers[0].topic_id
    commits = {(topic_id, 0): end_offset - 7, (topic_id, 1): end_offset + 100, (UUID(int=99), 0): 5}
    unset = {(topic_id, 0): -1}
    groups = [_group("readers", commits), _group("lost", {(UUID(int=99), 0): 5}), _group("idle", unset)]
    monkeypatch.setattr(endpoint.parts.groups, "statistics", lambda: GroupsStatistics(tuple(groups)))
    found = EndpointSummary.model_validate(await watch.facts_with_lag()).groups
    shown = {name: (group.partitions, group.lag, group.is_lag_complete) for name, group in found.items()}
    assert shown == {"readers": (3, 7, False), "lost": (1, None, False), "idle": (1, None, True)}


async def test_fetch_sessions_and_unusable_certificates_are_shown(
    endpoint: ReadEndpoint, watch: EndpointWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = replace(endpoint.parts.access.statistics(), failed_certificates=2, certificate_problem="no such file")
    monkeypatch.setattr(endpoint.parts.access, "statistics", lambda: access)
    monkeypatch.setattr(endpoint.parts.sessions, "statistics", lambda: FetchSessionStatistics(3, 40, 5))
    shown = EndpointSummary.model_validate(watch.facts())
    assert (shown.failed_certificates, shown.certificate_problem) == (2, "no such file")
    assert shown.fetch_sessions.model_dump() == {"sessions": 3, "partitions": 40, "evictions": 5}
    assert watch.use().failed_certificates == 2


def test_principals_beyond_fifty_share_a_series() -> None:
    metrics = Metrics(version="1", clock=FakeClock())
    recorder = RequestMetrics(metrics)
    for number in range(60):
        recorder.record(replace(REQUEST, principal=f"User:{number}"))
    text = metrics.render()[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("tierd_endpoint_principal_bytes_total{")]
    assert len(lines) == 51
    assert 'tierd_endpoint_principal_bytes_total{principal="other"} 100.0' in lines


REQUEST = RequestRecord(
    listener="PLAINTEXT",
    api="Fetch",
    version=16,
    principal="User:alice",
    client_id="reader",
    peer="127.0.0.1",
    outcome=RequestOutcome.ANSWERED,
    request_bytes=10,
    answer_bytes=10,
    handled_s=0.5,
    waited_s=0.4,
    sent_s=0.0,
)


def _group(name: str, offsets: dict[tuple[UUID, int], int]) -> GroupStatistics:
    return GroupStatistics(
        group=name,
        state="Empty",
        generation=1,
        protocol_type="",
        protocol_name="",
        members=(),
        offsets={OffsetKey(*key): GroupOffset("orders", offset, -1, "", 0) for key, offset in offsets.items()},
    )
