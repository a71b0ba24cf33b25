"""A real producer with small batches, for tests; see ``KafkaCluster.producer``."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.services.kafka_records import SentRecord

CLIENT_DEADLINE_S = 60.0


class RecordProducer:
    """A real producer with small batches, so that a little data has many of them."""

    def __init__(self, bootstrap: str, *, codec: str, idempotent: bool, transactional_id: str | None) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent or transactional_id is not None,
            "linger.ms": 5,
            "batch.num.messages": 25,
            "log_level": 2,  # a broker that a test stops is no news
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        self._failures: list[KafkaError] = []
        if transactional_id is not None:
            self._producer.init_transactions(CLIENT_DEADLINE_S)

    def send(self, topic: str, partition: int, records: Iterable[SentRecord]) -> None:
        """Queue records for one partition, in order."""
        for record in records:
            self._enqueue(topic, partition, record)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything.

        Raises:
            KafkaException: a record was refused, or not acknowledged in time.
        """
        left = self._producer.flush(CLIENT_DEADLINE_S)
        if self._failures or left:
            raise KafkaException(self._failures[0] if self._failures else KafkaError(KafkaError._TIMED_OUT))

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """Everything sent inside belongs to one transaction, which is committed or aborted at the end."""
        self._producer.begin_transaction()
        yield
        # Otherwise an abort would throw away what still waits in the client, and nothing aborted would reach the log.
        self._producer.flush(CLIENT_DEADLINE_S)
        if commit:
            self._producer.commit_transaction(CLIENT_DEADLINE_S)
        else:
            self._producer.abort_transaction(CLIENT_DEADLINE_S)

    def begin_transaction(self) -> None:
        """Open a transaction and leave it open, so that the last stable offset stays behind."""
        self._producer.begin_transaction()

    def end_transaction(self, *, commit: bool) -> None:
        """End what ``begin_transaction`` opened."""
        if commit:
            self._producer.commit_transaction(CLIENT_DEADLINE_S)
        else:
            self._producer.abort_transaction(CLIENT_DEADLINE_S)

    def _enqueue(self, topic: str, partition: int, record: SentRecord) -> None:
        while True:
            with suppress(BufferError):  # the client's queue is full: let some leave
                self._producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=lambda error, _message: self._failures.append(error) if error else None,
                )
                return
            self._producer.poll(0.1)
