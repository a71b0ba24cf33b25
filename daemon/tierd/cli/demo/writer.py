"""DemoWriter: a log dir with a few topics, filled at once and then kept growing until standard input ends."""

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

from tierd.cli.demo.files import replace_file, write_offset_checkpoint
from tierd.cli.demo.partition import DemoPartition
from tierd.errors import AlreadyRunningError, TierError
from tierd.log import Compression, ControlRecordType, NewRecord
from tierd.model import TopicPartition, uuid_from_text, uuid_to_text

TICK_S = 0.5
SEGMENT_BYTES = 32 * 1024
LOCAL_SEGMENTS = 10
RECORDS_PER_TICK = 20
HISTORY_TICKS = 60
HIGH_WATERMARKS = "replication-offset-checkpoint"

_PARTITIONS = {"orders": 2, "clicks": 1, "payments": 1}
_CODECS = {"clicks": Compression.ZSTD}
_TRANSACTIONAL = "payments"
_PRODUCER_ID = 4000
_ABORT_EVERY = 4


class DemoWriter:
    """Plays the broker on one log dir. One at a time: ``locked`` keeps others out, as Kafka's ``.lock`` does."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._partitions = {
            name: DemoPartition(
                log_dir / str(name),
                topic_id=self._topic_id(name.topic),
                segment_bytes=SEGMENT_BYTES,
                local_segments=LOCAL_SEGMENTS,
            )
            for name in _names()
        }
        self._transactions = 0

    def write_history(self, now_ms: int) -> None:
        """Write the first minute at once, so that there is something to tier."""
        for tick in range(HISTORY_TICKS):
            self.tick(now_ms - round((HISTORY_TICKS - tick) * TICK_S * 1000), retain=False)
        self.checkpoint()

    def recover(self, now_ms: int) -> None:
        """Abort what the last writer left open."""
        for partition in self._partitions.values():
            partition.abort_open_transactions(timestamp_ms=now_ms)
        self.checkpoint()

    def tick(self, now_ms: int, *, retain: bool = True) -> None:
        """Append a batch to every partition; a transaction ends with the tick after the one that began it."""
        for name, partition in self._partitions.items():
            producer_id = None
            if name.topic == _TRANSACTIONAL:
                producer_id = _PRODUCER_ID + name.partition
                self._end_transaction(partition, producer_id, now_ms)
            records = _records(name, partition.next_offset, now_ms)
            partition.append(records, codec=_CODECS.get(name.topic, Compression.NONE), producer_id=producer_id)
            if retain:
                partition.retain()

    def checkpoint(self) -> None:
        """Replace the three offset checkpoints; everything written is replicated, there is but one broker."""
        ends = {name: partition.next_offset for name, partition in self._partitions.items()}
        starts = {name: p.log_start_offset for name, p in self._partitions.items() if p.log_start_offset}
        write_offset_checkpoint(self._log_dir / "recovery-point-offset-checkpoint", ends)
        write_offset_checkpoint(self._log_dir / "log-start-offset-checkpoint", starts)
        write_offset_checkpoint(self._log_dir / HIGH_WATERMARKS, ends)

    def _end_transaction(self, partition: DemoPartition, producer_id: int, now_ms: int) -> None:
        if not partition.in_transaction(producer_id):
            return
        self._transactions += 1
        marker = ControlRecordType.COMMIT if self._transactions % _ABORT_EVERY else ControlRecordType.ABORT
        partition.end_transaction(producer_id, marker, timestamp_ms=now_ms)

    def _topic_id(self, topic: str) -> UUID:
        stored = self._log_dir / f"{topic}-0" / "partition.metadata"
        return uuid_from_text(stored.read_text().rsplit(": ", 1)[1]) if stored.exists() else uuid4()


def _write_identity(log_dir: Path, cluster_id: str, node_id: int) -> None:
    directory_id = uuid_to_text(uuid4())
    replace_file(
        log_dir / "meta.properties",
        f"#\n#tierd demo\nnode.id={node_id}\ndirectory.id={directory_id}\nversion=1\ncluster.id={cluster_id}\n",
    )


def _names() -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, count in _PARTITIONS.items() for number in range(count)]


def _records(name: TopicPartition, first_offset: int, now_ms: int) -> list[NewRecord]:
    random = Random(f"{name} {first_offset}")
    records = []
    for n in range(RECORDS_PER_TICK):
        customer = f"customer-{random.randrange(1000):04}"
        value = {
            "id": first_offset + n,
            "topic": name.topic,
            "customer": customer,
            "amount_cents": random.randrange(100, 100_000),
            "note": " ".join(random.choices(_WORDS, k=12)),
        }
        headers = (("source", b"tierd demo"),)
        records.append(NewRecord(customer.encode(), json.dumps(value).encode(), now_ms + n, headers))
    return records


_WORDS = ("segment", "leader", "epoch", "offset", "record", "batch", "lineage", "tier", "broker", "replica", "commit")


@contextlib.contextmanager
def locked(log_dir: Path, *, timeout_s: float = 10.0) -> Iterator[None]:
    """Hold the log dir's ``.lock``, waiting for a writer that is about to stop.

    Raises:
        AlreadyRunningError: another process keeps it.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    with (log_dir / ".lock").open("wb") as file:
        deadline_s = time.monotonic() + timeout_s
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline_s:
                raise AlreadyRunningError(
                    f"{log_dir} is in use by another demo writer", remedy="end the other make run first"
                )
            time.sleep(0.05)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def prepare(log_dir: Path, *, cluster_id: str | None, node_id: int | None) -> None:
    """Create the log dir with some history, or leave one that exists as it is. Blocking, below a second.

    Raises:
        AlreadyRunningError: another process writes there.
    """
    if (log_dir / HIGH_WATERMARKS).exists():  # what the history ends with
        return
    with locked(log_dir):
        _write_identity(log_dir, cluster_id or uuid_to_text(uuid4()), node_id or 1)
        DemoWriter(log_dir).write_history(_now_ms())


def keep_writing(log_dir: Path) -> None:
    """Append until standard input ends, which it does when the process at its other end is gone, however it went."""
    with locked(log_dir):
        writer = DemoWriter(log_dir)
        writer.recover(_now_ms())
        print("writing", flush=True)
        while not select.select([sys.stdin], [], [], TICK_S)[0]:
            writer.tick(_now_ms())
            writer.checkpoint()
        writer.checkpoint()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    """Run as ``python -m tierd.cli.demo.writer LOG_DIR``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon; its end closes our standard input
    try:
        keep_writing(Path(sys.argv[1]))
    except (OSError, TierError) as error:
        print(f"the demo writer stopped: {error}", file=sys.stderr)
        os._exit(1)


if __name__ == "__main__":
    main()
