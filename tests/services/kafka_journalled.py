"""Producers that record the outcome of every record, and outlive brokers; confluent-kafka ends here."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.services.kafka_records import SentRecord

SEND_DEADLINE_S = 90.0
_TRANSACTION_TIMEOUT_MS = 20_000


@dataclass(slots=True)
class Sent:
    """Outcomes of some records of one partition."""

    acknowledged: dict[int, SentRecord] = field(default_factory=dict)
    failed: list[SentRecord] = field(default_factory=list)


class JournalledProducer:
    """Producer of batches with ``acks=all`` that returns the outcome of each record, and raises no error for faults."""

    def __init__(self, bootstrap: str, *, transactional_id: str | None = None) -> None:
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": 20,
            "message.timeout.ms": 60_000,
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if transactional_id is not None:
            self._settings["transactional.id"] = transactional_id
            self._settings["transaction.timeout.ms"] = _TRANSACTION_TIMEOUT_MS
            self._settings["message.timeout.ms"] = _TRANSACTION_TIMEOUT_MS
        self._producer: Producer | None = None

    def send(self, topic: str, partition: int, records: Sequence[SentRecord]) -> Sent:
        """Send records outside of any transaction; wait until each is acknowledged or abandoned."""
        producer = self._connected()
        sent = self._enqueue(producer, topic, partition, records)
        with suppress(KafkaException):  # the producer cannot continue; each record has its own outcome
            producer.flush(SEND_DEADLINE_S)
        outcome = sent()
        if outcome.failed:
            self._producer = None  # an idempotent producer that lost a record may be unable to continue
        return outcome

    def transact(self, topic: str, partition: int, records: Sequence[SentRecord], *, commit: bool) -> Sent:
        """Send records as one transaction; ``failed`` are those of a transaction with unknown outcome."""
        try:
            producer = self._connected()
            producer.begin_transaction()
        except KafkaException:
            self._producer = None
            return Sent(failed=[])
        sent = self._enqueue(producer, topic, partition, records)
        try:
            producer.flush(SEND_DEADLINE_S)
            if commit and not sent().failed:
                producer.commit_transaction(SEND_DEADLINE_S)
            else:
                producer.abort_transaction(SEND_DEADLINE_S)
                return Sent()
        except KafkaException:
            self._producer = None  # the next producer with this id ends the transaction that this one left open
            return Sent(failed=list(records))
        return sent()

    def close(self) -> None:
        """Close the connection."""
        self._producer = None

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._settings)
            if "transactional.id" in self._settings:
                self._producer.init_transactions(SEND_DEADLINE_S)
        return self._producer

    def _enqueue(
        self, producer: Producer, topic: str, partition: int, records: Sequence[SentRecord]
    ) -> Callable[[], Sent]:
        answers: list[tuple[SentRecord, int | None]] = []

        def noting(record: SentRecord) -> Callable[[KafkaError | None, Message], None]:
            return lambda error, message: answers.append((record, None if error else message.offset()))

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
            answered = set()
            for record, offset in answers:
                answered.add(record.value)
                if offset is None or offset < 0:
                    sent.failed.append(record)
                else:
                    sent.acknowledged[offset] = record
            sent.failed += [r for r in records if r.value not in answered and r not in unsent]
            return sent

        return outcome
