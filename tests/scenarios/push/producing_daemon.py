"""``tierd run`` with a log dir of its own, and producers in its process that append to logs there.

Program ``python -m tests.scenarios.push.producing_daemon JOURNAL run --config FILE``. Each line of ``JOURNAL`` is a
record that a producer with ``acks=all`` takes for safe: partition, offset, value, and the monotonic time at which it
knew. That is when the high watermark passed the record, or the marker of its transaction.
"""

import asyncio
import os
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Final, TextIO

from tests.log.logs import end_marker, records
from tierd.app import Deployment, run_in_loop
from tierd.app.daemon.daemon import Daemon
from tierd.app.daemon.systemd_notifier import SystemdNotifier
from tierd.app.engine.compose import compose
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.config import load_config
from tierd.log import LogService, PartitionWriter
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.new_record import NO_PRODUCER, Producer
from tierd.model import TopicPartition
from tierd.tasks import end_tasks
from tierd.telemetry import configure_logging

PARTITIONS: Final = (*(TopicPartition("orders", number) for number in range(3)), TopicPartition("transactions", 0))
_LEADER_EPOCH: Final = 1
_PAUSE_S: Final = 0.04  # at most; about 60 kB a second in all, which the narrowest link of these scenarios carries
_ABORTED: Final = 1 / 3
_PRODUCER_ID: Final = 1000
_START: Final = "start\n"  # the line with which a process begins


class OwnProducer:
    """Producer of one partition. Each of its batches has one record, whose value is unique."""

    def __init__(self, partition: TopicPartition, writer: PartitionWriter, journal: TextIO, random: Random) -> None:
        self._partition = partition
        self._writer = writer
        self._journal = journal
        self._random = random
        self._waiting: deque[tuple[int, list[tuple[int, str]]]] = deque()
        self._epoch = len(Path(journal.name).read_text().split(_START)) % 0x7FFF
        self._sequence = 0

    async def run(self, produce: "Callable[[OwnProducer], Coroutine[None, None, None]]") -> None:
        """Produce until cancelled."""
        if produce is OwnProducer.transact:
            await self._end(commit=False)  # what the process before this one left open
        while True:
            await produce(self)
            self._note_acknowledged()
            await asyncio.sleep(_PAUSE_S * self._random.random())

    async def send(self) -> None:
        """Append a record outside of any transaction."""
        value = self._value()
        appended = await self._append(value, NO_PRODUCER)
        self._waiting.append((appended.last_offset, [(appended.last_offset, value)]))

    async def transact(self) -> None:
        """Append the records of a transaction, and its marker; a third of them aborts."""
        sent = []
        for _ in range(self._random.randrange(1, 5)):
            value = self._value()
            appended = await self._append(value, Producer(_PRODUCER_ID, self._epoch, self._sequence))
            self._sequence += 1
            sent.append((appended.last_offset, value))
        commit = self._random.random() > _ABORTED
        marker = await self._end(commit=commit)
        if commit:
            self._waiting.append((marker.last_offset, sent))

    async def _end(self, *, commit: bool) -> AppendInfo:
        marker = end_marker(_PRODUCER_ID, commit=commit, producer_epoch=self._epoch, timestamp_ms=_now_ms())
        return await self._writer.append(AppendRequest(marker, AppendOrigin.COORDINATOR, _LEADER_EPOCH))

    async def _append(self, value: str, producer: Producer) -> AppendInfo:
        data = records(
            value=value.encode(),
            timestamp_ms=_now_ms(),
            producer=producer,
            transactional=producer is not NO_PRODUCER,
        )
        return await self._writer.append_as_leader(data, leader_epoch=_LEADER_EPOCH)

    def _value(self) -> str:
        return f"{self._partition} {self._random.randbytes(100).hex()}"

    def _note_acknowledged(self) -> None:
        reached, now_s = self._writer.log.high_watermark, time.monotonic()
        while self._waiting and self._waiting[0][0] < reached:
            for offset, value in self._waiting.popleft()[1]:
                print(
                    self._partition, offset, value.rpartition(" ")[2], now_s, sep="\t", file=self._journal, flush=True
                )


async def _produce(service: LogService, journal: TextIO) -> None:
    print(_START, end="", file=journal, flush=True)
    async with asyncio.TaskGroup() as group:
        for number, partition in enumerate(PARTITIONS):
            topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, partition.topic)
            writer = await service.get_or_create(partition, topic_id=topic_id)
            producer = OwnProducer(partition, writer, journal, Random(f"{os.getpid()} {number}"))
            kind = OwnProducer.transact if partition.topic == "transactions" else OwnProducer.send
            group.create_task(producer.run(kind), name=f"producer of {partition}")


async def _run(deployment: Deployment, journal: TextIO) -> int:
    async with owned_state_dir(deployment.state_dir), compose(deployment) as engine:
        assert engine.logs.service is not None, "the configuration has a log dir of tierd"
        producing = asyncio.create_task(_produce(engine.logs.service, journal), name="producers")
        try:
            return await Daemon(engine, os.environ, SystemdNotifier.from_environment(os.environ)).run()
        finally:
            await end_tasks([producing])
            assert producing.cancelled(), producing.exception()


def _now_ms() -> int:
    return int(time.time() * 1000)


def main() -> None:
    """Run until a signal ends it."""
    journal_file, _, _, config_file = sys.argv[1:]
    config = load_config(Path(config_file), os.environ)
    configure_logging(format=config.logging.format, level=config.logging.level, stream=sys.stderr)
    with Path(journal_file).open("a") as journal:
        sys.exit(run_in_loop(_run(Deployment(config, Path(config_file)), journal)))


if __name__ == "__main__":
    main()
