"""EndpointWatch: what metrics, status and page show of the read endpoint, and the lag of its consumers."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final
from uuid import UUID

from pydantic import JsonValue

from tierd.app.endpoint.log_watermarks import LogWatermarks
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.errors import TierError
from tierd.model import TopicIdPartition
from tierd.serve import GroupStatistics, RequestRecord
from tierd.telemetry import EndpointListenerUse, EndpointSessionUse, EndpointUse, Metrics

_MOST_PRINCIPALS: Final = 50
_OTHER: Final = "other"
_MOST_GROUPS: Final = 200  # in the status; the metrics count all
_MOST_ENDS: Final = 1000  # partitions whose end one status looks up
_AT_ONCE: Final = 16
_DEADLINE_S: Final = 2.0


class RequestMetrics:
    """Recorder of the requests of clients in the metrics, with a bound on their labels."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._principals: set[str] = set()

    def record(self, request: RequestRecord) -> None:
        """Take one record."""
        self._metrics.endpoint_request_ended(
            request.listener,
            request.api,
            outcome=request.outcome.value,
            duration_s=request.busy_s,
            principal=self._bounded(request.principal),
            size_bytes=request.answer_bytes,
        )

    def _bounded(self, principal: str) -> str:
        if principal not in self._principals:
            if len(self._principals) >= _MOST_PRINCIPALS:
                return _OTHER
            self._principals.add(principal)
        return principal


class EndpointWatch:
    """Reader of the state of one endpoint. It keeps none of its own."""

    def __init__(self, endpoint: ReadEndpoint, watermarks: LogWatermarks) -> None:
        self._endpoint = endpoint
        self._watermarks = watermarks

    def use(self) -> EndpointUse:
        """Return the state for the metrics."""
        parts = self._endpoint.parts
        server, groups = parts.server.statistics(), parts.groups.statistics()
        access, sessions = parts.access.statistics(), parts.sessions.statistics()
        return EndpointUse(
            listeners={
                each.name: EndpointListenerUse(
                    connections=each.connections,
                    accepted=each.accepted,
                    closed_by_fault=each.closed_by_fault,
                    received_bytes=each.received_bytes,
                    sent_bytes=each.sent_bytes,
                )
                for each in server.listeners
            },
            refused=server.refused,
            memory_bytes={"requests": server.request_bytes, "answers": server.answer_bytes},
            waiting_answers=server.waiting_answers,
            failed_logins=access.failed_logins,
            failed_certificates=access.failed_certificates,
            fetch_sessions=EndpointSessionUse(
                sessions=sessions.sessions, partitions=sessions.partitions, evictions=sessions.evictions
            ),
            topics=len(parts.partitions.topics),
            groups=len(groups.groups),
            members=sum(len(group.members) for group in groups.groups),
            commits=groups.counters.commits,
            watermark_age_s=self._watermarks.age_s(),
        )

    def facts(self) -> dict[str, JsonValue]:
        """Return the section ``endpoint`` of the status, without the lag of consumers."""
        parts, use = self._endpoint.parts, self.use()
        access = parts.access.statistics()
        return {
            "not_ready": self._endpoint.not_ready,
            "listeners": {name: asdict(each) for name, each in use.listeners.items()},
            "connections_refused": use.refused,
            "memory_bytes": sum(use.memory_bytes.values()),
            "failed_logins": use.failed_logins,
            "failed_certificates": use.failed_certificates,
            "certificate_problem": access.certificate_problem,
            "fetch_sessions": asdict(use.fetch_sessions),
            "topics": use.topics,
            "held_listeners": list(access.held.listeners),
            "held_principals": list(access.held.principals),
            "watermark_age_s": use.watermark_age_s,
            "watermark_source": "broker" if parts.watermarks is not None else "checkpoint",
            "watermark_problem": self._watermarks.problem(),
            "peers_alive": [*sorted(parts.partitions.live_peers)],
            "groups": {},
        }

    async def facts_with_lag(self) -> dict[str, JsonValue]:
        """Return the section with the groups and the lag of each, where the ends of the logs are known soon."""
        groups = self._endpoint.parts.groups.statistics().groups[:_MOST_GROUPS]
        ends = await self._ends({key for group in groups for key in group.offsets})
        return {**self.facts(), "groups": {group.group: _group(group, ends) for group in groups}}

    async def _ends(self, keys: "set[tuple[UUID, int]]") -> Mapping[tuple[UUID, int], int]:
        partitions = self._endpoint.parts.partitions
        names = {topic.topic_id: topic.name for topic in partitions.topics.values()}
        wanted = [TopicIdPartition(key[0], names[key[0]], key[1]) for key in keys if key[0] in names][:_MOST_ENDS]
        slots, ends = asyncio.Semaphore(_AT_ONCE), dict[tuple[UUID, int], int]()

        async def note_end(partition: TopicIdPartition) -> None:
            log = partitions.log(partition)
            async with slots:
                try:
                    bounds = await log.bounds() if log is not None else None
                except TierError:
                    return
            if bounds is not None:
                ends[partition.topic_id, partition.partition] = bounds.high_watermark

        try:
            async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as group:
                for partition in wanted:
                    group.create_task(note_end(partition), name=f"end of {partition}")
        except TimeoutError:
            pass  # the others are shown without a lag
        return ends


def _group(group: GroupStatistics, ends: Mapping[tuple[UUID, int], int]) -> dict[str, JsonValue]:
    offsets = {key: each.offset for key, each in group.offsets.items() if each.offset >= 0}
    lags = {key: max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends}
    return {
        "state": group.state,
        "members": len(group.members),
        "partitions": len(group.offsets),
        "lag": sum(lags.values()) if lags else None,
        "is_lag_complete": len(lags) == len(offsets),
    }
