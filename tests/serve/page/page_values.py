"""Values for the pages: partitions of a host in every state, remote segments, and the sources of a server."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import JsonValue

from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    uuid_to_text,
)
from tierd.model.lineage import EpochEntry
from tierd.model.remote_log_segment import SoftDelete
from tierd.serve import (
    CopyOnNode,
    HostInventory,
    LocalPiece,
    PageSources,
    PartitionLayout,
    PastWork,
    RateSample,
    RateSeries,
    StatusSnapshot,
    TierSources,
)
from tierd.tiering import ManifestFacts, PartitionStatus, partition_inventory
from tierd.tiering.local.partition_log import CopyLag
from tierd.tiering.partition_status import PartitionState

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
TOPIC_ID = UUID(int=7)
ORDERS = TopicPartition("orders", 0)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
MARKUP = "<script>alert(1)</script>"
"""Name of a topic that no broker makes, and that a page must survive."""
HOSTILE = (MARKUP, "a\"b' onload=x", "päger/日本 %41?#", "\x1b[31m\u202etxt.exe")


def status_of(name: str, state: PartitionState = "idle", **changes: object) -> PartitionStatus:
    """Return the status of a partition that all is well with, but for the changes."""
    topic, _, number = name.rpartition("-")
    facts: dict[str, object] = {
        "partition": TopicPartition(topic, int(number)),
        "topic_id": uuid_to_text(TOPIC_ID),
        "directory": f"/data/{name}",
        "role": "leader",
        "leader_epoch": 3,
        "copied_through": 299,
        "high_watermark": 420,
        "log_start_offset": 0,
        "local_log_start_offset": 200,
        "state": state,
        "reason": "",
        "last_error": None,
        "remedy": "",
        "retry_at_ms": None,
        "lag": CopyLag(),
    }
    return PartitionStatus(**(facts | changes))  # type: ignore[arg-type] # keyword by keyword as declared


def snapshot_of(partitions: Sequence[PartitionStatus] = (), **changes: object) -> StatusSnapshot:
    """Return the status of a daemon that is ready, but for the changes."""
    facts: dict[str, object] = {
        "version": "1.2.3",
        "pid": 42,
        "cluster_id": "cluster",
        "node_id": 1,
        "started_ms": NOW_MS - 5000,
        "now_ms": NOW_MS,
        "not_ready": (),
        "partitions": tuple(partitions),
        "log_dirs": (),
        "hold": {"segments": 2, "bytes": 7000, "unheld_segments": 0},
        "metadata": {},
        "unprotected": {"bytes": 0, "seconds": 0.0, "partition": ""},
        "totals": {"store_requests": 1234, "copied_bytes": 5 << 30, "copy_errors": 0},
    }
    return StatusSnapshot(**(facts | changes))  # type: ignore[arg-type] # keyword by keyword as declared


def row(
    start: int,
    end: int,
    state: RemoteLogSegmentState = FINISHED,
    *,
    partition: TopicPartition = ORDERS,
    reason: str = "",
    time_ms: int = NOW_MS - DAY_MS,
) -> RemoteLogSegmentMetadata:
    """Return a remote segment; with a ``reason`` its deletion has begun."""
    owner = TopicIdPartition(TOPIC_ID, partition.topic, partition.partition)
    return RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(owner, uuid.uuid5(TOPIC_ID, f"{partition} {start} {end} {state} {reason}")),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=time_ms + end,
        broker_id=1,
        event_timestamp_ms=NOW_MS - 1000,
        size_bytes=(end - start + 1) * 1000,
        segment_leader_epochs=(EpochEntry(3, start),),
        leader_epoch=3,
        session_id=UUID(int=1),
        state=state,
        soft_delete=SoftDelete(reason, NOW_MS + DAY_MS) if reason else None,
    )


def facts_of(name: str = "orders-0", **changes: object) -> PartitionLayout:
    """Return a partition with ranges of every kind: a gap at 100 to 149, a standby, compaction up to 200."""
    partition = status_of(name).partition
    rows = (
        row(0, 49, DELETING, partition=partition, reason="retention_time"),
        row(50, 99, partition=partition),
        row(150, 180, DELETING, partition=partition, reason="replaced"),
        row(150, 199, partition=partition),
        row(200, 299, partition=partition),
        row(300, 349, STARTED, partition=partition),
    )
    local = (
        LocalPiece(base_offset=200, next_base_offset=300, size_bytes=100_000, modified_ms=NOW_MS - 9000),
        LocalPiece(base_offset=300, next_base_offset=350, size_bytes=50_000, modified_ms=NOW_MS - 5000, waits=True),
        LocalPiece(base_offset=350, next_base_offset=None, size_bytes=70_000, modified_ms=NOW_MS - 100),
    )
    facts: dict[str, object] = {
        "partition": partition,
        "now_ms": NOW_MS,
        "topic_id": uuid_to_text(TOPIC_ID),
        "status": status_of(name, "copying", reason="copies 300 to 349"),
        "rows": rows,
        "log_start_offset": 50,
        "compacted_to": 200,
        "local": local,
        "standbys": (CopyOnNode(node_id=2, start_offset=50, end_offset=400, detail="20 records behind"),),
    }
    return PartitionLayout(**(facts | changes))  # type: ignore[arg-type] # keyword by keyword as declared


def inventory_of(names: Sequence[str]) -> HostInventory:
    """Return the contents of partitions: of the one with number N, N + 1 segments of a hundred offsets."""
    found = []
    for name in names:
        partition = status_of(name).partition
        rows = [row(100 * n, 100 * n + 99, partition=partition) for n in range(partition.partition % 5 + 1)]
        owner = TopicIdPartition(TOPIC_ID, partition.topic, partition.partition)
        found.append(partition_inventory(owner, rows))
    return HostInventory(partitions=tuple(found))


@dataclass(slots=True)
class Host:
    """State of a daemon behind the pages, which a test changes at will."""

    snapshot: StatusSnapshot = field(default_factory=snapshot_of)
    held: HostInventory = field(default_factory=HostInventory)
    facts: dict[TopicPartition, PartitionLayout] = field(default_factory=dict)
    work: PastWork = field(default_factory=PastWork)
    rates: RateSeries = field(default_factory=RateSeries)
    store_problem: str = ""
    asked: list[int] = field(default_factory=list)

    def sources(self) -> PageSources:
        return PageSources(
            status=self.status,
            tier=TierSources(
                inventory=self.inventory,
                partition=self.partition,
                manifests=self.manifests,
                past=self.past,
                rates=self.rates,
            ),
        )

    async def status(self) -> StatusSnapshot:
        return self.snapshot

    async def inventory(self) -> HostInventory:
        return self.held

    async def partition(self, name: TopicPartition) -> PartitionLayout | None:
        return self.facts.get(name)

    async def manifests(self, rows: Sequence[RemoteLogSegmentMetadata]) -> tuple[Mapping[UUID, ManifestFacts], str]:
        self.asked.append(len(rows))
        if self.store_problem:
            return {}, self.store_problem
        return {
            each.segment.id: ManifestFacts(
                record_count=each.end_offset - each.start_offset + 1,
                stored_bytes=each.size_bytes // 4,
                log_bytes=each.size_bytes,
            )
            for each in rows
        }, ""

    async def past(self, _partition: TopicPartition | None) -> PastWork:
        return self.work


def host_with(count: int) -> Host:
    """Return a host with so many partitions; among the first four is one in need of a person, and names like markup."""
    names = [f"{topic}-{n}" for n in range(2) for topic in (MARKUP, "orders")][:count]
    names += [f"topic-{n // 20:03d}-{n % 20}" for n in range(count - len(names))]
    statuses = [status_of(name) for name in names]
    if statuses:
        late = CopyLag(segments=3, bytes=3 << 20, oldest_ms=NOW_MS - 90_000)
        statuses[0] = status_of(names[0], "quarantined", last_error=f"torn {MARKUP}", remedy="run it", lag=late)
    drills: dict[str, JsonValue] = {
        "enabled": True,
        "partitions": len(names),
        "unproven": 0,
        "proven_until_ms": NOW_MS - 3_600_000,
        "last_success_ms": NOW_MS - 3_500_000,
        "next_begin_ms": NOW_MS + 3_600_000,
    }
    host = Host(snapshot=snapshot_of(statuses, drills=drills), held=inventory_of(names))
    host.facts = {each.partition: facts_of(str(each.partition)) for each in statuses[:4]}
    for minute in range(90):
        sample = RateSample(copied_bytes=minute * minute * 1e6, store_requests=minute * 60, lag_seconds=minute % 30)
        host.rates.add(minute * 60.0, sample)
    return host
