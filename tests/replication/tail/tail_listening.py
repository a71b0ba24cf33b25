"""RecordingListener: what a listener was told of a log. TailFollowing: a log that a test follows poll by poll."""

import asyncio

from tests.log.batches import TOPIC_ID
from tests.replication.tail.broker_log import BrokerLog
from tierd.log import parse_header
from tierd.model import TopicIdPartition
from tierd.replication.tail.tail_poll import TailPollRequest, poll_tail
from tierd.replication.tail.tail_reads import LogDirThreads, TailScans
from tierd.replication.tail.tail_records import OpenTails
from tierd.replication.tail.tail_start import begin_tail
from tierd.replication.tail.tail_values import TailLimit, TailPoll
from tierd.replication.tail.tailed_log import TailedLog

PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)
Event = tuple[str, int]


class RecordingListener:
    """The events, and the batches since the last truncation by their base offset."""

    def __init__(self, log_end_offset: int = 0) -> None:
        self.events: list[Event] = []
        self.told: dict[int, bytes] = {}
        self.start_offset = self.next_offset = log_end_offset
        self.has_append = asyncio.Event()

    def on_append(self, append_offset: int, records: bytes, next_offset: int) -> None:
        assert append_offset == self.next_offset
        at, last_offset = 0, append_offset - 1
        while at < len(records):
            header = parse_header(records, at, name="told", position=at)
            assert header is not None
            assert header.base_offset > last_offset
            last_offset = header.last_offset
            self.told[header.base_offset] = records[at : at + header.size_bytes]
            at += header.size_bytes
        assert last_offset + 1 == next_offset
        self.next_offset = next_offset
        self.events.append(("append", next_offset))
        self.has_append.set()

    def on_high_watermark(self, high_watermark: int) -> None:
        assert high_watermark <= self.next_offset
        self.events.append(("high watermark", high_watermark))

    def on_log_start_offset(self, log_start_offset: int) -> None:
        assert log_start_offset <= self.next_offset
        self.events.append(("log start", log_start_offset))

    def on_truncated(self, log_end_offset: int) -> None:
        self.told.clear()
        self.start_offset = self.next_offset = log_end_offset
        self.events.append(("truncated", log_end_offset))

    def taken_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events


class TailFollowing:
    """A log with its listener, polled whenever a test says so."""

    def __init__(
        self, broker: BrokerLog, *, limit: TailLimit = TailLimit.LEO, watermark: int = -1, max_bytes: int = 1 << 20
    ) -> None:
        limit_offset = max(watermark, 0) if limit is TailLimit.HWM else None
        position = begin_tail(broker.directory, limit_offset=limit_offset)
        self.open_tails = OpenTails(4)
        self.threads = LogDirThreads("data", readers=1)
        self.log = TailedLog(
            PARTITION,
            position,
            limit=limit,
            threads=lambda: self.threads,
            scans=TailScans(),
            open_tails=self.open_tails,
        )
        self.log.raise_watermark(watermark)
        self.listener = RecordingListener(self.log.log_end_offset)
        self.log.listen(self.listener)
        self._max_bytes = max_bytes

    def poll(self) -> TailPoll:
        """Poll once."""
        request = TailPollRequest(self.log.position, self.log.limit_offset, self._max_bytes, self.log.wants_descriptor)
        done = poll_tail(request)
        self.log.apply(done)
        return done

    def poll_to_the_end(self) -> TailPoll:
        """Poll until a poll brings nothing more."""
        while (done := self.poll()).has_more:
            pass
        return done

    def close(self) -> None:
        self.log.listen(None)
        self.open_tails.close()
        self.threads.close()
