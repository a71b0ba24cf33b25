"""FetchPart: one partition of a fetch, from the client's wish to its answer. Decisions only, no I/O."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from tierd.model import IsolationLevel
from tierd.serve.kafka.fetching.fetch_demand import FetchKey, PartitionFetch
from tierd.serve.kafka.fetching.partition_answer import NO_ANSWER, PartitionAnswer
from tierd.serve.kafka.fetching.position_rules import Readiness, readiness
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartition
from tierd.serve.kafka.served.served_log import LogBounds, LogRead, ServedLog


@dataclass(slots=True)
class FetchPart:
    """One partition of a fetch.

    Attributes:
        served: None for a partition that does not exist, or that the client may not read.
        log: None where there is nothing to read; the answer says why.
        bounds: as they were seen last; None before that.
        answer: as far as it is known: ``conclude`` completes it.
        is_settled: the answer does not change by waiting.
        is_pending: the tier did not answer in time.
        has_more: the client gets more records by asking again at once.
        held_until_s: no read before that time, on the clock of the endpoint; 0 without a quota that holds it back.
        read_end_offset: end of the log at the last read; -1 before the first one.
    """

    key: FetchKey
    wanted: PartitionFetch
    served: ServedPartition | None
    log: ServedLog | None
    answer: PartitionAnswer = NO_ANSWER
    bounds: LogBounds | None = None
    is_settled: bool = False
    is_pending: bool = False
    has_more: bool = False
    held_until_s: float = 0.0
    read_end_offset: int = -1
    size_bytes: int = 0
    """Size of the records of the last read, which stays when they are dropped to wait for more."""

    def settle(self, answer: PartitionAnswer) -> None:
        """Answer with an error, or with a divergence."""
        self.answer = answer
        self.is_settled = True
        self.size_bytes = 0

    def fail(self, error: ErrorCode) -> None:
        """Answer with an error."""
        self.settle(PartitionAnswer(error))

    def fail_with_leader(self, error: ErrorCode) -> None:
        """Answer with an error, and tell the client the leader and its epoch."""
        self.settle(PartitionAnswer(error, leader=self.served))

    def see(self, bounds: LogBounds, isolation: IsolationLevel) -> None:
        """Take the present bounds of the log."""
        self.bounds = bounds
        if readiness(self.wanted.offset, bounds, isolation) is Readiness.BEFORE_START:
            self.fail(ErrorCode.offset_out_of_range)

    def take(self, read: LogRead, isolation: IsolationLevel, now_s: float) -> None:
        """Take what a read returned."""
        self.bounds = read.bounds
        self.answer = PartitionAnswer.of_read(read, isolation)
        self.size_bytes = read.size_bytes
        self.is_pending = read.is_pending
        self.has_more = read.has_more or any(isinstance(each, bytes) for each in read.records)
        self.held_until_s = now_s + read.throttled_ms / 1000 if read.throttled_ms else 0.0
        self.read_end_offset = -1 if read.throttled_ms else read.bounds.end_offset(isolation)

    def give_up_records(self) -> None:
        """Answer without the records that were read: too few, or no room for them."""
        if self.answer.records:
            self.answer = NO_ANSWER

    @property
    def needs_memory(self) -> bool:
        """Return True if the records may be read into memory."""
        local_start = self.bounds.local_start_offset if self.bounds else None
        return local_start is None or self.wanted.offset < local_start

    @property
    def found_nothing(self) -> bool:
        """Return True if a read returned no records and gave no reason."""
        return not (self.size_bytes or self.is_settled or self.is_pending or self.held_until_s)

    def is_readable(self, isolation: IsolationLevel, now_s: float) -> bool:
        """Return True if a read finds records, as far as the bounds tell."""
        return (
            not self.is_settled
            and self.bounds is not None
            and self.held_until_s <= now_s
            and self.wanted.offset < self.bounds.end_offset(isolation)
        )

    def expected_bytes(self, isolation: IsolationLevel) -> float:
        """Return the bytes that have come since the last read, as far as that read tells: infinity if it does not."""
        assert self.bounds is not None, "the bounds of a readable partition are known"
        came = self.bounds.end_offset(isolation) - self.read_end_offset
        if self.read_end_offset < 0 or (came > 0 and not self.size_bytes):
            return float("inf")
        return came * self.size_bytes / max(1, self.read_end_offset - self.wanted.offset)

    def conclude(self, isolation: IsolationLevel, cluster: ServedCluster) -> None:
        """Turn "no records" into the answer for it: the bounds, or an error where the client has to know more.

        A client at the end of a log whose newest records only the leader's daemon can know is sent there. Metadata
        names the same leader, so that only a client with old metadata comes here.
        """
        if self.is_settled or self.answer.records or self.bounds is None or self.served is None:
            return
        self.answer = PartitionAnswer.empty(self.bounds, isolation)
        place = readiness(self.wanted.offset, self.bounds, isolation)
        if place is Readiness.READABLE:
            return
        if not self.bounds.is_end_known and is_led_elsewhere(self.served, cluster):
            self.fail_with_leader(ErrorCode.not_leader_or_follower)
        elif place is Readiness.BEYOND_END:
            self.fail(ErrorCode.offset_not_available)


def is_led_elsewhere(served: ServedPartition, cluster: ServedCluster) -> bool:
    """Return True if another live endpoint leads the partition."""
    leader_id = served.leader_id
    return leader_id != cluster.node_id and any(node.node_id == leader_id for node in cluster.nodes)
