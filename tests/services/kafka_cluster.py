"""A real Kafka broker for tests, and the real clients that fill and read it; confluent-kafka ends here.

Start brokers from the main thread: the kernel ends them together with the thread that started them.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, yet not declared as exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.services.kafka_records import ConsumedRecord, SentRecord, consumed
from tests.services.waiting import StillWaitingError, wait_until

_SCRIPT = Path(__file__).parent / "kafka" / "kafka.sh"
_ROOT = Path(__file__).parents[2]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_DEADLINE_S = 60.0
CLIENT_DEADLINE_S = 60.0


class KafkaUnavailableError(Exception):
    """No broker can be had on this machine; the message says what is missing."""


def require_kafka(version: str) -> None:
    """Fetch the jars of ``version`` unless they are there.

    Raises:
        KafkaUnavailableError: no Java, no Maven, or the jars could not be fetched.
    """
    for program, remedy in (("java", "install a Java 17 runtime"), ("setpriv", "install util-linux")):
        if shutil.which(program) is None:
            raise KafkaUnavailableError(f"{program} is not installed: {remedy}")
    fetched = subprocess.run(
        [str(_SCRIPT), "libs"],
        env=_environment({"KAFKA_VERSION": version}),
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise KafkaUnavailableError(
            f"Kafka {version} could not be fetched: {(fetched.stderr or fetched.stdout)[-500:]}"
        )


class KafkaBroker:
    """One broker with its controller, in a folder and on ports of its own. Use as a context manager."""

    def __init__(
        self,
        lab_dir: Path,
        *,
        version: str = "3.9.2",
        log_dir_count: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self.log_dirs = tuple(lab_dir / f"data-{n}" for n in range(1, log_dir_count + 1))
        self._server_log = lab_dir / "node1" / "server.log"
        port = _free_port_pair()
        self.bootstrap = f"127.0.0.1:{port}"
        self._environment = _environment(
            {
                "KAFKA_VERSION": version,
                "KAFKA_LAB_DIR": str(lab_dir),
                "KAFKA_PORT": str(port),
                "KAFKA_DATA_DIRS": ",".join(map(str, self.log_dirs)),
                "KAFKA_PROPS": "\n".join(f"{name}={value}" for name, value in (properties or {}).items()),
            }
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    # ---------------------------------------------------------------- the process

    def start(self) -> None:
        """Format the storage once, start the broker, and return when it serves."""
        subprocess.run([str(_SCRIPT), "format"], env=self._environment, check=True)
        with self._server_log.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(_SCRIPT), "run", "1"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._has_started, what="the broker", deadline_s=START_DEADLINE_S, last_seen=self._log_tail)

    def stop(self) -> None:
        """Stop the broker cleanly: checkpoints are written, indexes trimmed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a power cut does."""
        self._end(signal.SIGKILL)

    def _end(self, signal_number: signal.Signals) -> None:
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(signal_number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _has_started(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise KafkaUnavailableError(f"the broker ended with {self._process.returncode}: {self._log_tail()}")
        return b"Kafka Server started" in self._server_log.read_bytes()

    def _log_tail(self) -> str:
        return self._server_log.read_text(errors="replace")[-2000:]

    # ---------------------------------------------------------------- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        segment_bytes: int | None = None,
    ) -> None:
        """Create a topic that keeps everything until told otherwise; ``segment_bytes`` may be tiny on any version."""
        settings = {"retention.ms": "-1", "file.delete.delay.ms": "500"} | dict(configs or {})
        if segment_bytes is not None:
            # Kafka 4 refuses less than 1 MiB under the public name.
            internal = "" if self.version.startswith("3.") else "internal."
            settings[f"{internal}segment.bytes"] = str(segment_bytes)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()
        admin.create_topics([topic])[name].result(CLIENT_DEADLINE_S)
        wait_until(
            lambda: all(self.partition_dir(name, p) is not None for p in range(partitions)),
            what=f"the directories of {name}",
            deadline_s=CLIENT_DEADLINE_S,
        )

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Set some of a topic's settings, keeping the others."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = self._admin()
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(CLIENT_DEADLINE_S)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(CLIENT_DEADLINE_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its directories are renamed ``-delete`` at once and removed later."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(CLIENT_DEADLINE_S)

    def partition_dir(self, topic: str, partition: int) -> Path | None:
        """The partition's current directory, None when no log dir has one."""
        found = [log_dir / f"{topic}-{partition}" for log_dir in self.log_dirs]
        return next((path for path in found if path.is_dir()), None)

    def base_offsets(self, topic: str, partition: int) -> list[int]:
        """Base offsets of the local segments, ascending; those renamed for deletion are not counted."""
        directory = self.partition_dir(topic, partition)
        return sorted(int(log.stem) for log in directory.glob("*.log")) if directory else []

    def _admin(self) -> AdminClient:
        # A new one each time: one kept over a restart of the broker asks with an old leader epoch. Callers keep it in
        # a variable until the answer is there: a dropped client cancels its calls.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    # ---------------------------------------------------------------- records

    @contextmanager
    def producer(
        self, *, codec: str = "none", idempotent: bool = False, transactional_id: str | None = None
    ) -> Iterator["RecordProducer"]:
        """A real producer; what it was given is flushed at the end."""
        producer = RecordProducer(self.bootstrap, codec=codec, idempotent=idempotent, transactional_id=transactional_id)
        yield producer
        producer.flush()

    def consume_all(
        self, partitions: Sequence[tuple[str, int]], *, committed: bool = False
    ) -> dict[tuple[str, int], list[ConsumedRecord]]:
        """What a real consumer gets of each (topic, partition), from its start to its end.

        Args:
            partitions: at least one.
            committed: only committed records, to the last stable offset.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tierd-oracle",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
            return _read_to_end(consumer, partitions)
        finally:
            consumer.close()

    def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark, exclusive."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tierd-oracle", "log_level": 2})
        try:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CLIENT_DEADLINE_S)
        finally:
            consumer.close()
        assert marks is not None, "the broker answered"
        return int(marks[1])


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


def _read_to_end(
    consumer: Consumer, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[ConsumedRecord]]:
    records: dict[tuple[str, int], list[ConsumedRecord]] = {partition: [] for partition in partitions}
    unread = set(partitions)
    end_s = time.monotonic() + CLIENT_DEADLINE_S
    while unread:
        if time.monotonic() > end_s:
            raise StillWaitingError(f"the consumer did not reach the end of {unread} in {CLIENT_DEADLINE_S:g} s")
        for message in consumer.consume(1000, timeout=0.2):
            topic, partition, error = message.topic(), message.partition(), message.error()
            assert topic is not None
            assert partition is not None
            if error is None:
                records[topic, partition].append(consumed(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((topic, partition))
            else:
                raise KafkaException(error)
    return records


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    return {"KAFKA_LIBS_DIR": str(_ROOT / ".cache" / "kafka")} | dict(os.environ) | dict(settings)


def _free_port_pair() -> int:
    """A free port whose successor, the controller's, is free too; the window until the broker binds is small."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with suppress(OSError):
                second.bind(("127.0.0.1", port + 1))
                return port
