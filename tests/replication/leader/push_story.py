"""Stories of a ``PushRouter``: a leader's events and its peers' answers, on a clock that only the test moves."""

from collections.abc import Iterable
from struct import Struct
from uuid import UUID

from tierd.kernels import crc32c
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.record_memory import MemoryRecords, batch_bounds
from tierd.replication.leader.pushing.push_actions import (
    CloseLink,
    LeadershipDoubted,
    OpenLink,
    PushLeader,
    PushSessionEnded,
    ReadChunk,
    RecordsAcknowledged,
    ReleaseFile,
    SendAppend,
)
from tierd.replication.leader.pushing.push_router import PushRouter
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    PartitionAppend,
    PartitionAppendResult,
)
from tierd.replication.model.push_session import PeerNode, PushSession, PushSessionEndReason, PushSessionIdentity

_HEADER = Struct(">qiibIhiqqqhii")
LEADER = PushLeader("cluster", 0, 7)
REPLICA_EPOCH = 100
ENOUGH_STEPS = 10_000


def batch(base_offset: int, *, count: int = 1, size: int = 100, epoch: int = 1) -> bytes:
    """Return a batch of exactly ``size`` bytes with a good checksum; what it claims as records are zeros."""
    header = bytearray(
        _HEADER.pack(base_offset, size - 12, epoch, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count) + bytes(size - 61)
    )
    header[17:21] = crc32c(bytes(header[21:])).to_bytes(4, "big")
    return bytes(header)


def topic_partition(partition: int = 0) -> TopicIdPartition:
    """Return a partition of the one topic."""
    return TopicIdPartition(UUID(int=1), "orders", partition)


class RecordingSession(PushSession):
    """Session that records its callbacks."""

    def __init__(self, identity: PushSessionIdentity, *, rises: bool = False) -> None:
        super().__init__(identity, PeerNode(identity.replica_id, f"host{identity.replica_id}", 9406))
        self.rises = rises
        self.raises = False
        self.acks: list[tuple[int, int]] = []
        self.sent_at_s: list[float] = []
        self.calls: list[str] = []
        self.ends: list[PushSessionEndReason] = []

    def on_append_records_response(self, log_end_offset: int, log_start_offset: int, *, sent_at_s: float) -> bool:
        self.calls.append("ack")
        self.acks.append((log_end_offset, log_start_offset))
        self.sent_at_s.append(sent_at_s)
        if self.raises:
            raise KeyError("a bug")
        return self.rises

    def try_complete_delayed_requests(self) -> None:
        self.calls.append("complete")

    def on_push_session_ended(self, reason: PushSessionEndReason) -> None:
        self.calls.append("end")
        self.ends.append(reason)
        if self.raises:
            raise KeyError("a bug")


def session(
    partition: int = 0, replica: int = 1, *, session_id: int = 5, leader_epoch: int = 1, replica_epoch: int = 100
) -> RecordingSession:
    """Return a session of a partition replica."""
    return RecordingSession(
        PushSessionIdentity(topic_partition(partition), replica, leader_epoch, replica_epoch, session_id)
    )


class HeldRange:
    """File range whose bytes are in memory, or can be made; it counts its reads."""

    def __init__(
        self, first_offset: int, next_offset: int, data: bytes = b"", *, size_bytes: int | None = None
    ) -> None:
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.size_bytes = len(data) if size_bytes is None else size_bytes
        self.data = data
        self.is_readable = True
        self.reads: list[int] = []
        self.closed = 0

    async def read(self, position: int, max_bytes: int) -> bytes:
        return self.piece(position, max_bytes) or b""

    def piece(self, position: int, max_bytes: int) -> bytes | None:
        """Return whole batches from ``position`` on."""
        self.reads.append(position)
        end = position
        for each in batch_bounds(self.data, position):
            if end > position and each.end_position - position > max_bytes:
                break
            end = each.end_position
        return self.data[position:end] if self.is_readable else None

    def close(self) -> None:
        self.closed += 1


class PushStory:
    """Router with peers that connect at once, and answer when the test says so.

    Attributes:
        outstanding: requests without an answer, in the order of their sending.
        sent: all requests.
        is_reachable: False lets connections fail.
        reads_at_once: False leaves reads in ``pending_reads``.
    """

    def __init__(self, **settings: float) -> None:
        self.settings = PushSettings(**settings)  # type: ignore[arg-type]
        self.router = PushRouter(self.settings, LEADER, random=lambda: 1.0, is_strict=True)
        self.now_s = 0.0
        self.outstanding: list[SendAppend] = []
        self.sent: list[AppendRecordsRequest] = []
        self.sent_at_s: list[float] = []
        self.closed_links: list[int] = []
        self.opened_links: list[int] = []
        self.doubts: list[tuple[TopicIdPartition, int]] = []
        self.is_reachable = True
        self.closes_at_once = True
        self.reads_at_once = True
        self.pending_reads: list[ReadChunk] = []
        self.log_end_offsets: dict[tuple[int, int], int] = {}

    def start(self, *sessions: RecordingSession, at: int = 0) -> None:
        """Begin sessions, and let the peers acknowledge an empty range at ``at``."""
        for each in sessions:
            self.open(each, HeldRange(at, at))
        self.answer_all()

    def open(self, started: RecordingSession, file: HeldRange | None = None, *, last_epoch: int = -1) -> None:
        """Begin a session, with its file range."""
        self.router.start_push(started, self.now_s)
        if file is not None:
            identity = started.identity
            self.log_end_offsets[identity.replica_id, identity.partition.partition] = file.first_offset
            self.router.on_leader_append(
                identity.partition,
                [identity.replica_id],
                file.first_offset,
                file,
                last_epoch=last_epoch,
                now_s=self.now_s,
            )
        self.step()

    def append(
        self,
        base_offset: int,
        *,
        partition: int = 0,
        replicas: Iterable[int] = (1,),
        count: int = 1,
        size: int = 100,
        epoch: int = 1,
    ) -> None:
        """Append a batch at the leader."""
        data = batch(base_offset, count=count, size=size, epoch=epoch)
        self.append_bytes(base_offset, data, base_offset + count, partition=partition, replicas=replicas)

    def append_bytes(
        self,
        append_offset: int,
        data: bytes,
        next_offset: int,
        *,
        partition: int = 0,
        replicas: Iterable[int] = (1,),
    ) -> None:
        """Append bytes at the leader."""
        self.router.on_leader_append(
            topic_partition(partition), replicas, append_offset, MemoryRecords(data, next_offset), now_s=self.now_s
        )
        self.step()

    def high_watermark(self, offset: int, *, partition: int = 0, replicas: Iterable[int] = (1,)) -> None:
        self.router.on_high_watermark_update(topic_partition(partition), replicas, offset, self.now_s)
        self.step()

    def log_start(self, offset: int, *, partition: int = 0, replicas: Iterable[int] = (1,)) -> None:
        self.router.on_log_start_offset_update(topic_partition(partition), replicas, offset, self.now_s)
        self.step()

    def stop(self, reason: PushSessionEndReason, *, partition: int = 0, replicas: Iterable[int] = (1,)) -> None:
        self.router.stop_push(topic_partition(partition), replicas, reason, self.now_s)
        self.step()

    def wait(self, delay_s: float) -> None:
        """Move time on, with everything that is due on the way."""
        end_s = self.now_s + delay_s
        for _ in range(ENOUGH_STEPS):
            at_s = self.router.deadline_s
            if at_s > end_s:
                self.now_s = end_s
                return
            self.now_s = max(self.now_s, at_s)
            self.step()
        raise AssertionError("the router never rests")

    def step(self) -> None:
        """Do all that is due now."""
        for _ in range(ENOUGH_STEPS):
            if self.router.deadline_s <= self.now_s:
                self.router.advance(self.now_s)
            if not self.router.has_actions:
                if self.router.deadline_s > self.now_s:
                    return
                continue
            for action in self.router.take_actions():
                self._perform(action)
        raise AssertionError("the router never rests")

    def answer(self, *codes: int, leo: int | None = None, code: int = 0, throttle_ms: int = 0) -> AppendRecordsRequest:
        """Answer the oldest request.

        ``codes`` are those of its partitions, 0 by default; ``leo`` is the log end offset of all of them, by default
        that of a follower that appended what it took; ``code`` is for the whole request.
        """
        action = self.outstanding.pop(0)
        given = [*codes, *[0] * len(action.request.partitions)]
        results = [
            self._result(action, part, given[place], leo) for place, part in enumerate(action.request.partitions)
        ]
        response = AppendRecordsResponse(throttle_ms=throttle_ms, error_code=code, partitions=tuple(results))
        self.respond(action, response)
        return action.request

    def respond(self, action: SendAppend, response: AppendRecordsResponse) -> None:
        """Hand an answer to the router."""
        self.router.on_response(action.pusher, action.link_id, action.request_id, response, self.now_s)
        self.step()

    def answer_all(self) -> None:
        """Answer requests until no more come."""
        self.step()
        while self.outstanding:
            self.answer()

    def break_links(self) -> None:
        """Let all connections with a request break."""
        for action in self.outstanding:
            self.router.on_link_closed(action.pusher, action.link_id, self.now_s)
        self.outstanding.clear()
        self.step()

    def read(self) -> None:
        """Carry out the pending reads."""
        pending, self.pending_reads = self.pending_reads, []
        for action in pending:
            self._read(action)
        self.step()

    def confirm_closed(self) -> None:
        """Report that the connections are closed that were to be closed."""
        for link_id in self.closed_links:
            for pusher in range(self.settings.max_pushers):
                self.router.on_link_closed(pusher, link_id, self.now_s)

    @property
    def used_bytes(self) -> int:
        return self.router.budget.used_bytes

    def parts(self, request: int = -1) -> list[PartitionAppend]:
        """Return the partitions of a request."""
        return list(self.sent[request].partitions)

    def records(self, request: int = -1) -> list[list[int]]:
        """Return, for each partition of a request, the base offsets of its batches."""
        return [base_offsets(part) for part in self.sent[request].partitions]

    def _result(self, action: SendAppend, part: PartitionAppend, code: int, leo: int | None) -> PartitionAppendResult:
        node_id = next(
            node
            for node, lane in self.router.pushers[action.pusher].slots.lanes.items()
            if lane.link_id == action.link_id
        )
        key = (node_id, part.partition)
        if leo is None:
            leo = self.log_end_offsets.get(key, max(part.append_offset, 0))
            if code == 0 and part.records:
                leo = end_of(part)
        if code == 0:
            self.log_end_offsets[key] = leo
        return PartitionAppendResult(
            topic_id=part.topic_id, partition=part.partition, error_code=code, log_end_offset=leo, log_start_offset=0
        )

    def _perform(self, action: object) -> None:
        match action:
            case OpenLink():
                self.opened_links.append(action.link_id)
                if self.is_reachable:
                    self.router.on_link_opened(action.pusher, action.link_id, REPLICA_EPOCH, self.now_s)
                else:
                    self.router.on_link_closed(action.pusher, action.link_id, self.now_s)
            case CloseLink():
                self.closed_links.append(action.link_id)
                self.outstanding = [
                    each for each in self.outstanding if (each.pusher, each.link_id) != (action.pusher, action.link_id)
                ]
                if self.closes_at_once:
                    self.router.on_link_closed(action.pusher, action.link_id, self.now_s)
            case SendAppend():
                self.outstanding.append(action)
                self.sent.append(action.request)
                self.sent_at_s.append(self.now_s)
            case ReadChunk():
                self.pending_reads.append(action)
                if self.reads_at_once:
                    self._read(self.pending_reads.pop())
            case ReleaseFile(file):
                file.close()
            case RecordsAcknowledged():
                self._acknowledge(action)
            case PushSessionEnded():
                action.session.on_push_session_ended(action.reason)
            case LeadershipDoubted():
                self.doubts.append((action.partition, action.leader_epoch))

    def _read(self, action: ReadChunk) -> None:
        assert isinstance(action.file, HeldRange)
        data = action.file.piece(action.position, action.max_bytes)
        self.router.on_chunk_read(action.pusher, action.chunk_id, data, self.now_s)

    @staticmethod
    def _acknowledge(action: RecordsAcknowledged) -> None:
        acked = action.session
        if acked.on_append_records_response(action.log_end_offset, action.log_start_offset, sent_at_s=action.sent_at_s):
            acked.try_complete_delayed_requests()


def data_of(part: PartitionAppend) -> bytes:
    """Return the records of a partition in one piece."""
    return b"".join(bytes(piece) for piece in part.records or ())


def base_offsets(part: PartitionAppend) -> list[int]:
    """Return the base offsets of the batches of a partition."""
    return [each.base_offset for each in batch_bounds(data_of(part))]


def end_of(part: PartitionAppend) -> int:
    """Return the offset behind the last batch of a partition."""
    return max(each.next_offset for each in batch_bounds(data_of(part)))
