"""PublishQueue: the messages that wait for the MQTT broker. Pure; time is an argument.

::

    retained state ──► one slot per topic, the newest value ─┐
    session events ──► one slot per partition, one a second ─┼─► at most ``rate`` messages a second
    requests, replies ──► first in, first out, served first ─┘

Each part has a bound, and a payload above 4 KiB is refused (push-replication 4.2, 4.4). Retained state is also kept
after it was sent, so that it can be published again after a reconnect: the broker may have lost it.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from tierd.control.mqtt.control_messages import MAX_PAYLOAD_BYTES

MAX_RETAINED: Final = 50_000
MAX_EVENTS: Final = 2_000
MAX_DIRECT: Final = 200
TOPIC_INTERVAL_S: Final = 1.0
EVENT_EXPIRY_S: Final = 60
_BURST: Final = 20
_MAX_PACE_MARKS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message for the MQTT broker; all have QoS 1.

    Attributes:
        expiry_s: time after which the broker drops the message; None for retained state, which does not expire.
        response_topic, correlation: of a request, and the correlation of its reply.
    """

    topic: str
    payload: bytes
    retain: bool = False
    expiry_s: int | None = None
    response_topic: str = ""
    correlation: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCounts:
    """Messages that wait, retained state that is kept, and messages since start that were dropped, by reason."""

    waiting: int
    retained: int
    too_large: int
    queue_full: int
    superseded: int


class PublishQueue:
    """The queue above."""

    def __init__(
        self,
        *,
        rate_per_s: int = 200,
        max_retained: int = MAX_RETAINED,
        max_events: int = MAX_EVENTS,
        max_direct: int = MAX_DIRECT,
    ) -> None:
        """Keep at most these numbers of messages; any second has at most ``rate_per_s`` of them."""
        self._burst = max(1, min(_BURST, rate_per_s // 2))
        self._rate_per_s = max(1, rate_per_s - self._burst)  # a full burst and a second at this rate: rate_per_s
        self._max_retained = max_retained
        self._max_events = max_events
        self._max_direct = max_direct
        self._retained: dict[str, OutgoingMessage] = {}
        self._pending: OrderedDict[str, None] = OrderedDict()  # topics of retained state that is to be sent
        self._events: dict[str, OutgoingMessage] = {}
        self._direct: deque[OutgoingMessage] = deque()
        self._sent_at_s: dict[str, float] = {}  # by topic, of the last second
        self._tokens = float(self._burst)
        self._filled_at_s: float | None = None
        self._too_large = self._queue_full = self._superseded = 0

    def retain(self, topic: str, payload: bytes, *, is_urgent: bool = False) -> bool:
        """Keep ``payload`` as the state of ``topic`` and send it; an older one that waits is dropped.

        Returns False if it was refused: too large, or a new topic beyond the bound. ``is_urgent`` state goes first.
        """
        if self._is_too_large(payload):
            return False
        if topic not in self._retained and len(self._retained) >= self._max_retained:
            self._queue_full += 1
            return False
        self._retained[topic] = OutgoingMessage(topic=topic, payload=payload, retain=True)
        self._superseded += topic in self._pending
        self._pending[topic] = None
        if is_urgent:
            self._pending.move_to_end(topic, last=False)
        return True

    def withdraw(self, topic: str) -> None:
        """Stop keeping the state of ``topic``; the broker's copy stays."""
        self._retained.pop(topic, None)
        self._pending.pop(topic, None)

    def repeat(self, topic: str) -> None:
        """Send the state of ``topic`` again: the broker has another one."""
        if topic in self._retained:
            self._pending[topic] = None

    def repeat_all(self) -> None:
        """Send all state again, after a reconnect."""
        self._pending.update(dict.fromkeys(self._retained))

    def event(self, topic: str, payload: bytes) -> bool:
        """Send an event; an older one of the same topic that waits is dropped. Returns False if it was refused."""
        if self._is_too_large(payload):
            return False
        if topic in self._events:
            self._superseded += 1
        elif len(self._events) >= self._max_events:
            self._queue_full += 1
            return False
        self._events[topic] = OutgoingMessage(topic=topic, payload=payload, expiry_s=EVENT_EXPIRY_S)
        return True

    def direct(self, message: OutgoingMessage) -> bool:
        """Send a request or a reply. Returns False if it was refused."""
        if self._is_too_large(message.payload):
            return False
        if len(self._direct) >= self._max_direct:
            self._queue_full += 1
            return False
        self._direct.append(message)
        return True

    def drop_direct(self) -> None:
        """Drop requests and replies: the connection that they were for is gone."""
        self._direct.clear()

    def next(self, now_s: float) -> OutgoingMessage | float | None:
        """Return the message to send now, or the seconds until one may be sent; None while the queue is empty."""
        if not (self._direct or self._pending or self._events):
            return None
        self._fill(now_s)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate_per_s
        found = self._take(now_s)
        if isinstance(found, OutgoingMessage):
            self._tokens -= 1
            self._mark(found.topic, now_s)
        return found

    def counts(self) -> PublishCounts:
        """Return the sizes of the queue, and what it dropped."""
        return PublishCounts(
            waiting=len(self._direct) + len(self._pending) + len(self._events),
            retained=len(self._retained),
            too_large=self._too_large,
            queue_full=self._queue_full,
            superseded=self._superseded,
        )

    def _take(self, now_s: float) -> OutgoingMessage | float:
        if self._direct:
            return self._direct.popleft()
        shortest_s = TOPIC_INTERVAL_S
        for topic in self._pending:
            if (wait_s := self._rest_s(topic, now_s)) <= 0:
                del self._pending[topic]
                return self._retained[topic]
            shortest_s = min(shortest_s, wait_s)
        for topic in self._events:
            if (wait_s := self._rest_s(topic, now_s)) <= 0:
                return self._events.pop(topic)
            shortest_s = min(shortest_s, wait_s)
        return shortest_s

    def _rest_s(self, topic: str, now_s: float) -> float:
        """Return the time for which ``topic`` rests after its last message."""
        sent_at_s = self._sent_at_s.get(_paced_by(topic))
        return 0.0 if sent_at_s is None else sent_at_s + TOPIC_INTERVAL_S - now_s

    def _mark(self, topic: str, now_s: float) -> None:
        marks = self._sent_at_s
        marks.pop(_paced_by(topic), None)
        marks[_paced_by(topic)] = now_s
        while marks and (len(marks) > _MAX_PACE_MARKS or marks[next(iter(marks))] + TOPIC_INTERVAL_S <= now_s):
            del marks[next(iter(marks))]

    def _fill(self, now_s: float) -> None:
        if self._filled_at_s is not None:
            self._tokens += max(0.0, now_s - self._filled_at_s) * self._rate_per_s
        self._tokens = min(self._tokens, float(self._burst))
        self._filled_at_s = now_s

    def _is_too_large(self, payload: bytes) -> bool:
        is_too_large = len(payload) > MAX_PAYLOAD_BYTES
        self._too_large += is_too_large
        return is_too_large


def _paced_by(topic: str) -> str:
    """Return the part of a topic that has one message a second: a partition for the events of its replicas."""
    return topic.rpartition("/push/")[0] or topic
