"""Measurements of the benchmark's leader: from an append, or from bytes in memory, to the standby's answer."""

import asyncio
import uuid
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from itertools import count, cycle, islice
from statistics import quantiles
from time import perf_counter, process_time
from typing import Final

from tests.bench.append import make_batches
from tests.bench.push.handed_log import HandedLog
from tests.bench.push.nodes import Answer
from tests.fakes.eventually import eventually
from tierd.log import LogService
from tierd.log.partition.append_info import AppendInfo
from tierd.model import TopicIdPartition
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.logs.open_segments import OpenSegments
from tierd.replication.leader.logs.owned_leader_log import OwnedLeaderLog
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.model.push_session import PeerNode

_WINDOW_BYTES: Final = 16 << 20  # records without an acknowledgement: half of what a session may have
_APPENDS_AT_ONCE_BYTES: Final = 8 << 20
_SETTINGS: Final = (("max.message.bytes", str(2 << 20)), ("retention.ms", "-1"))
_DEADLINE_S: Final = 600.0
_WARM_UP: Final = 10  # the first 1/10 of the delays does not count


class LeaderVerbs:
    """Partitions that the node leads. Each verb makes a topic, measures, and deletes the topic everywhere."""

    def __init__(self, led: LedReplicators, logs: LogService, segments: OpenSegments, standby: PeerNode) -> None:
        """Measure with the parts of a running leader."""
        self._led = led
        self._logs = logs
        self._segments = segments
        self._standby = standby
        self._topics = count()
        self._acknowledged = asyncio.Event()
        self._awaited: dict[TopicIdPartition, deque[tuple[int, asyncio.Future[None]]]] = defaultdict(deque)

    async def handed(self, *, batch_bytes: int, data_bytes: int, partitions: int) -> Answer:
        """Hand batches in memory to push replication: the cost of push alone."""
        batches = make_batches(batch_bytes=batch_bytes, data_bytes=data_bytes // partitions)
        records = next(batch_bounds(batches[0])).next_offset
        logs = [HandedLog(each, self._acknowledged.set) for each in self._new_topic(partitions)]
        for log in logs:
            self._led.lead(log, [self._standby], config=_SETTINGS, raise_high_watermark=log.raise_high_watermark)
        await self._all_pushed()
        window = _WINDOW_BYTES // batch_bytes * records
        begun_s, used_s = perf_counter(), process_time()
        for batch in batches:
            for log in logs:
                while _unacknowledged(logs) > window:
                    await self._next_acknowledgement()
                log.hand_over(batch, log.log_end_offset + records)
        while _unacknowledged(logs):
            await self._next_acknowledgement()
        took_s, cpu_s = perf_counter() - begun_s, process_time() - used_s
        for log in logs:
            self._led.delete(log.partition)
        return {"seconds": took_s, "leader_cpu_s": cpu_s, "bytes": float(partitions * sum(map(len, batches)))}

    async def owned(self, *, batch_bytes: int, data_bytes: int, partitions: int) -> Answer:
        """Append batches to logs that tierd owns, several at a time, and have them pushed."""
        batch = make_batches(batch_bytes=batch_bytes, data_bytes=2 * batch_bytes)[0]
        window = _WINDOW_BYTES // batch_bytes * next(batch_bounds(batch)).next_offset
        logs = await self._owned_logs(partitions)
        left = iter(list(islice(cycle(logs), data_bytes // len(batch))))

        async def produce() -> None:
            for log in left:
                while _unacknowledged(logs) > window:
                    await self._next_acknowledgement()
                await self._append(log, batch)

        begun_s, used_s = perf_counter(), process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(_APPENDS_AT_ONCE_BYTES // batch_bytes):
                group.create_task(produce(), name="producer")
        while _unacknowledged(logs):
            await self._next_acknowledgement()
        took_s, cpu_s = perf_counter() - begun_s, process_time() - used_s
        await self._delete(logs)
        return {"seconds": took_s, "leader_cpu_s": cpu_s, "bytes": float(data_bytes // len(batch) * len(batch))}

    async def latency(self, *, batch_bytes: int, partitions: int, appends_per_s: float, seconds: float) -> Answer:
        """Append at a fixed rate to logs that tierd owns; return the times from then to the acknowledgement."""
        batch = make_batches(batch_bytes=batch_bytes, data_bytes=2 * batch_bytes)[0]
        logs = await self._owned_logs(partitions)
        delays_s: list[float] = []

        async def append(log: OwnedLeaderLog, due_s: float) -> None:
            appended = await self._append(log, batch)
            await self._acknowledgement_of(log, appended.last_offset)
            delays_s.append(perf_counter() - due_s)

        begun_s = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * appends_per_s)):
                due_s = begun_s + number / appends_per_s
                if (early_s := due_s - perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                group.create_task(append(logs[number % partitions], due_s), name="append")
        counted = quantiles(delays_s[len(delays_s) // _WARM_UP :], n=100)
        await self._delete(logs)
        return {"p50_s": counted[49], "p99_s": counted[98]}

    async def begin_idle(self, *, partitions: int) -> Answer:
        """Have ``partitions`` empty partitions in sessions."""
        logs = [HandedLog(each, self._acknowledged.set) for each in self._new_topic(partitions)]
        for log in logs:
            self._led.lead(log, [self._standby], config=_SETTINGS, raise_high_watermark=log.raise_high_watermark)
        await self._all_pushed()
        return {}

    async def rest(self, *, seconds: float) -> Answer:
        """Append nothing for a while."""
        await asyncio.sleep(seconds)
        return {}

    # ---------------------------------------------------------------- parts

    def _new_topic(self, partitions: int) -> list[TopicIdPartition]:
        number = next(self._topics)
        return [TopicIdPartition(uuid.UUID(int=number + 1), f"bench-{number}", each) for each in range(partitions)]

    async def _owned_logs(self, partitions: int) -> list[OwnedLeaderLog]:
        logs = []
        for each in self._new_topic(partitions):
            writer = await self._logs.get_or_create(each.topic_partition, topic_id=each.topic_id)
            log = await OwnedLeaderLog.open(each, writer, self._segments, leader_epoch=1)
            self._led.lead(
                log,
                [self._standby],
                config=_SETTINGS,
                raise_high_watermark=partial(self._take_acknowledgement, log),
            )
            logs.append(log)
        await self._all_pushed()
        return logs

    async def _append(self, log: OwnedLeaderLog, batch: bytes) -> AppendInfo:
        writer = self._logs.writer(log.partition.topic_partition)
        return await writer.append_as_leader(batch, leader_epoch=log.leader_epoch)

    def _take_acknowledgement(self, log: OwnedLeaderLog, offset: int) -> None:
        log.raise_high_watermark(offset)
        self._acknowledged.set()
        awaited = self._awaited[log.partition]
        while awaited and awaited[0][0] < log.high_watermark:
            awaited.popleft()[1].set_result(None)

    async def _acknowledgement_of(self, log: OwnedLeaderLog, offset: int) -> None:
        """Wait for one offset, as a producer does: it is not woken by the acknowledgements of others."""
        if log.high_watermark <= offset:
            acknowledged = asyncio.get_running_loop().create_future()
            self._awaited[log.partition].append((offset, acknowledged))
            await acknowledged

    async def _next_acknowledgement(self) -> None:
        self._acknowledged.clear()
        await self._acknowledged.wait()

    async def _all_pushed(self) -> None:
        await eventually(
            lambda: not any(each.why_not_pushed for each in self._led.statuses()),
            what="the sessions",
            deadline_s=_DEADLINE_S,
            interval_s=0.05,
        )

    async def _delete(self, logs: Sequence[OwnedLeaderLog]) -> None:
        for log in logs:
            self._led.delete(log.partition)
            await log.close()
            await self._logs.delete(log.partition.topic_partition)


def _unacknowledged(logs: Sequence[HandedLog | OwnedLeaderLog]) -> int:
    return sum(log.log_end_offset - log.high_watermark for log in logs)
