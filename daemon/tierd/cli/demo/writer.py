"""DemoWriter: a log dir with a few topics, filled at once and then growing until standard input ends."""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import UUID

from tierd.cli.demo.demo_partition import DemoPartition
from tierd.cli.output.printing import print_error, print_line
from tierd.cli.session import log_to_stderr
from tierd.clock import SystemClock
from tierd.errors import AlreadyRunningError, LogDirLockedError, TierError
from tierd.log import (
    Compression,
    ControlRecordType,
    LogConfig,
    LogDirLock,
    LogManager,
    LogManagerSettings,
    MetaProperties,
    NewRecord,
    OsDisk,
    read_meta_properties,
    write_meta_properties,
)
from tierd.model import TopicPartition, random_id, uuid_to_text

TICK_S = 0.5
SEGMENT_BYTES = 32 * 1024
RETENTION_BYTES = 10 * SEGMENT_BYTES
RECORDS_PER_TICK = 20
HISTORY_TICKS = 60

_CONFIG = LogConfig(
    segment_bytes=SEGMENT_BYTES,
    segment_index_bytes=4096,
    retention_ms=-1,
    retention_bytes=RETENTION_BYTES,
    file_delete_delay_ms=round(TICK_S * 1000),
)
_PARTITIONS = {"orders": 2, "clicks": 1, "payments": 1}
_CODECS = {"clicks": Compression.ZSTD}
_TRANSACTIONAL = "payments"
_PRODUCER_ID = 4000
_ABORT_EVERY = 4
_LOCK_DEADLINE_S = 10.0


class DemoWriter:
    """Broker of a log dir: its producers, its transaction coordinator, and the leader of every partition."""

    def __init__(self, manager: LogManager) -> None:
        """Lead the partitions in the log dir of ``manager``, which was started; missing partitions are made."""
        self._manager = manager
        self._partitions = {
            name: DemoPartition(manager.get_or_create(name, topic_id=self._topic_id(name.topic))) for name in _names()
        }
        self._transactions = 0

    def write_history(self, now_ms: int) -> None:
        """Write the first minute at once, so that there are segments to copy."""
        for tick in range(HISTORY_TICKS):
            self.tick(now_ms - round((HISTORY_TICKS - tick) * TICK_S * 1000))

    def recover(self, now_ms: int) -> None:
        """Abort the transactions that the last writer left open."""
        for partition in self._partitions.values():
            partition.abort_open_transactions(now_ms=now_ms)
        self.checkpoint()

    def tick(self, now_ms: int) -> None:
        """Append a batch to every partition; a transaction that began with the last tick is ended first."""
        for name, partition in self._partitions.items():
            producer_id = None
            if name.topic == _TRANSACTIONAL:
                producer_id = _PRODUCER_ID + name.partition
                self._end_transaction(partition, producer_id, now_ms)
            records = _records(name, partition.next_offset, now_ms)
            codec = _CODECS.get(name.topic, Compression.NONE)
            partition.append(records, now_ms=now_ms, codec=codec, producer_id=producer_id)
            partition.tend(now_ms)

    def checkpoint(self) -> None:
        """Replace the three offset checkpoints, which tell the daemon how far it may copy."""
        self._manager.checkpoint_log_start_offsets()
        self._manager.checkpoint_recovery_points()
        self._manager.checkpoint_high_watermarks()

    def _end_transaction(self, partition: DemoPartition, producer_id: int, now_ms: int) -> None:
        if not partition.in_transaction(producer_id):
            return
        self._transactions += 1
        marker = ControlRecordType.COMMIT if self._transactions % _ABORT_EVERY else ControlRecordType.ABORT
        partition.end_transaction(producer_id, marker, now_ms=now_ms)

    def _topic_id(self, topic: str) -> UUID:
        first = self._manager.get(TopicPartition(topic, 0))
        return (first.topic_id if first else None) or random_id()


@contextmanager
def opened(log_dir: Path) -> Iterator[DemoWriter]:
    """Own the log dir as a broker does, its ``.lock`` included, and stop cleanly afterwards. Blocking.

    Raises:
        AlreadyRunningError: another writer uses the log dir.
        LogError: a log cannot be loaded.
    """
    with LogManager([log_dir], LogManagerSettings(config_for=lambda _: _CONFIG), acquire_lock=_lock_in_time) as manager:
        yield DemoWriter(manager)


def _lock_in_time(log_dir: Path) -> LogDirLock:
    """Take the lock; wait for a writer that is about to stop."""
    deadline_s = time.monotonic() + _LOCK_DEADLINE_S
    while True:
        try:
            return LogDirLock.acquire(log_dir)
        except LogDirLockedError as error:
            if time.monotonic() > deadline_s:
                raise AlreadyRunningError(
                    f"{log_dir} is in use by another demo writer", remedy="end the other make run first"
                ) from error
        time.sleep(0.05)


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


def prepare(log_dir: Path, *, cluster_id: str | None, node_id: int | None) -> None:
    """Create the log dir with some history, or leave an existing one as it is. Blocks for less than a second.

    Raises:
        AlreadyRunningError: another process writes there.
        CheckpointError: the identity of the log dir cannot be understood.
        LogDirOfflineError: the disk is full or failing.
    """
    if read_meta_properties(log_dir) is not None:  # written last, so the history is complete
        return
    with opened(log_dir) as writer:
        writer.write_history(SystemClock().now_ms())
        identity = MetaProperties(
            cluster_id or uuid_to_text(random_id()), 1 if node_id is None else node_id, random_id()
        )
        write_meta_properties(OsDisk(), log_dir, identity, now_ms=SystemClock().now_ms())


def keep_writing(log_dir: Path) -> None:
    """Append until standard input ends: it ends with the process at its other end, also after a kill."""
    with opened(log_dir) as writer:
        writer.recover(SystemClock().now_ms())
        input_ended = select.poll()
        input_ended.register(sys.stdin, select.POLLIN)
        print_line("writing", flush=True)
        while not input_ended.poll(TICK_S * 1000):
            writer.tick(SystemClock().now_ms())
            writer.checkpoint()


def main() -> None:
    """Run as ``python -m tierd.cli.demo.writer LOG_DIR``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the daemon, whose end closes standard input
    log_to_stderr()  # standard output has the one line that the daemon waits for
    try:
        keep_writing(Path(sys.argv[1]))
    except (OSError, TierError) as error:
        print_error(f"the demo writer stopped: {error}")
        os._exit(1)


if __name__ == "__main__":
    main()
