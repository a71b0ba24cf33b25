"""Producers that record the outcome of every record, and outlive brokers; confluent-kafka ends here."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.services.kafka_records import SentRecord

SEND_DEADLINE_S = 90.0
_TRANSACTION_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """Records of a transaction that the cluster said it had aborted, and its first and last moment."""

    records: Sequence[SentRecord]
    began_ms: int
    ended_ms: int

    def was_open_at(self, at_ms: int) -> bool:
        """Return True if the producer waited for the end of the transaction then."""
        return self.began_ms <= at_ms <= self.ended_ms


@dataclass(slots=True)
class Sent:
    """Outcomes of some records of one partition.

    Attributes:
        acknowledged: records by offset.
        acknowledged_at_s: monotonic times of the acknowledgements, by offset; those of a transaction come before the
            end of the transaction.
        failed: records that may be in the log or not.
        aborted: transactions that the cluster said it had aborted.
        is_end_asked: the broker was asked to commit or abort the transaction.
    """

    acknowledged: dict[int, SentRecord] = field(default_factory=dict)
    acknowledged_at_s: dict[int, float] = field(default_factory=dict)
    failed: list[SentRecord] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    is_end_asked: bool = False


class JournalledProducer:
    """Producer of batches with ``acks=all`` that returns the outcome of each record, and raises no error for faults."""

    def __init__(
        self, bootstrap: str, *, transactional_id: str | None = None, deadline_s: float = SEND_DEADLINE_S
    ) -> None:
        """Connect with the first record; ``deadline_s`` is for each wait on the broker."""
        self._deadline_s = deadline_s
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": 20,
            "message.timeout.ms": int(min(60.0, deadline_s) * 1000),
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if transactional_id is not None:
            self._settings["transactional.id"] = transactional_id
            self._settings["transaction.timeout.ms"] = _TRANSACTION_TIMEOUT_MS
            self._settings["message.timeout.ms"] = min(_TRANSACTION_TIMEOUT_MS, int(deadline_s * 1000))
        self._producer: Producer | None = None

    def send(self, topic: str, partition: int, records: Sequence[SentRecord]) -> Sent:
        """Send records outside of any transaction; wait until each is acknowledged or abandoned."""
        producer = self._connected()
        sent = self._enqueue(producer, topic, partition, records)
        with suppress(KafkaException):  # the producer cannot continue; each record has its own outcome
            producer.flush(self._deadline_s)
        outcome = sent()
        if outcome.failed:
            self._producer = None  # an idempotent producer that lost a record may be unable to continue
        return outcome

    def transact(self, topic: str, partition: int, records: Sequence[SentRecord], *, commit: bool) -> Sent:
        """Send records as one transaction; ``failed`` are those of a transaction with unknown outcome."""
        began_ms = _now_ms()
        try:
            producer = self._connected()
            producer.begin_transaction()
        except KafkaException:
            self._producer = None
            return Sent(failed=[])
        sent, is_end_asked = self._enqueue(producer, topic, partition, records), False
        try:
            producer.flush(self._deadline_s)
            is_end_asked = True
            if commit and not sent().failed:
                producer.commit_transaction(self._deadline_s)
            else:
                producer.abort_transaction(self._deadline_s)
                return Sent(aborted=[AbortedTransaction(records, began_ms, _now_ms())])
        except KafkaException:
            self._producer = None  # the next producer with this id ends the transaction that this one left open
            return Sent(failed=list(records), is_end_asked=is_end_asked)
        return sent()

    def close(self) -> None:
        """Close the connection."""
        self._producer = None

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._settings)
            if "transactional.id" in self._settings:
                self._producer.init_transactions(self._deadline_s)
        return self._producer

    def _enqueue(
        self, producer: Producer, topic: str, partition: int, records: Sequence[SentRecord]
    ) -> Callable[[], Sent]:
        answers: list[tuple[SentRecord, int | None, float]] = []

        def noting(record: SentRecord) -> Callable[[KafkaError | None, Message], None]:
            # The client calls back with an exception pending when it cannot continue: nothing but a list may be called.
            return lambda error, message: answers.append(
                (record, None, 0.0) if error else (record, message.offset(), time.monotonic())
            )

        unsent: list[SentRecord] = []
        for record in records:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=noting(record),
                )
            except (BufferError, KafkaException):
                unsent.append(record)

        def outcome() -> Sent:
            sent = Sent(failed=list(unsent))
            answered = {id(record) for record, _, _ in answers}
            for record, offset, at_s in answers:
                if offset is None or offset < 0:
                    sent.failed.append(record)
                else:
                    sent.acknowledged[offset] = record
                    sent.acknowledged_at_s[offset] = at_s
            sent.failed += [r for r in records if id(r) not in answered and r not in unsent]
            return sent

        return outcome


def _now_ms() -> int:
    return int(time.time() * 1000)
