"""Real producer with small batches, for tests; ``KafkaCluster.producer`` makes it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.services.kafka_records import SentRecord

CLIENT_DEADLINE_S = 60.0
OPEN_TRANSACTION_MS = 600_000  # a test leaves a transaction open while it waits; the coordinator does not abort it


class RecordProducer:
    """Real producer with small batches, so that few records make many batches."""

    def __init__(self, bootstrap: str, *, codec: str, idempotent: bool, transactional_id: str | None) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent or transactional_id is not None,
            "linger.ms": 5,
            "batch.num.messages": 25,
            "log_level": 2,  # a stopped broker is expected
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = OPEN_TRANSACTION_MS
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
        """Wait until the broker has acknowledged all records.

        Raises:
            KafkaException: a record was refused, or not acknowledged in time.
        """
        left = self._producer.flush(CLIENT_DEADLINE_S)
        if self._failures or left:
            raise KafkaException(self._failures[0] if self._failures else KafkaError(KafkaError._TIMED_OUT))

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """Send records of the block as one transaction, which is committed or aborted at the end."""
        self._producer.begin_transaction()
        yield
        # Without this an abort would drop records that wait in the client, and no aborted record would reach the log.
        self._producer.flush(CLIENT_DEADLINE_S)
        if commit:
            self._producer.commit_transaction(CLIENT_DEADLINE_S)
        else:
            self._producer.abort_transaction(CLIENT_DEADLINE_S)

    def begin_transaction(self) -> None:
        """Open a transaction and leave it open, so that the last stable offset stays behind."""
        self._producer.begin_transaction()

    def end_transaction(self, *, commit: bool) -> None:
        """End the transaction of ``begin_transaction``."""
        if commit:
            self._producer.commit_transaction(CLIENT_DEADLINE_S)
        else:
            self._producer.abort_transaction(CLIENT_DEADLINE_S)

    def _enqueue(self, topic: str, partition: int, record: SentRecord) -> None:
        while True:
            with suppress(BufferError):  # the queue of the client is full: let it send some records
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
