"""FetchRound: one fetch from its parts to their answers: looks, reads, and waits for records to come."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kio.schema.errors import ErrorCode

from tierd.clock import Clock
from tierd.errors import OffsetOutOfRangeError, TierError
from tierd.model import IsolationLevel
from tierd.serve.kafka.client_errors import AskedFor, error_code_for
from tierd.serve.kafka.fetching.failure_log import FailureLog
from tierd.serve.kafka.fetching.fetch_demand import FetchDemand
from tierd.serve.kafka.fetching.fetch_part import FetchPart
from tierd.serve.kafka.fetching.fetch_plan import FetchPlan, PlannedRead, ReadLimit, memory_bytes
from tierd.serve.kafka.fetching.log_changes import LogChanges, listening
from tierd.serve.kafka.fetching.partition_answer import PartitionAnswer
from tierd.serve.kafka.fetching.partition_lookup import PartitionLookup
from tierd.serve.kafka.fetching.position_rules import divergence
from tierd.serve.kafka.request_context import RequestContext

_MIN_REMOTE_WAIT_S = 0.1
_NEWEST_VERSION = 18
_PARTS_PER_TURN = 16  # most logs are looked at without a wait

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of the endpoint on one fetch, whatever the client asks for.

    Attributes:
        max_bytes: records of one answer (Kafka: ``fetch.max.bytes``).
        max_wait_s: for records to come. The client asks again after it.
        remote_wait_s: for a read of the tier (KIP-1018: ``remote.fetch.max.wait.ms``); it goes on in the background.
        failure_pause_s: before an answer that has no records, but an error after which clients repeat their request at
            once: without a pause, an outage of the store would make every client ask as fast as it can.
        concurrent_reads: of one fetch.
    """

    max_bytes: int = 55 * 1024 * 1024
    max_wait_s: float = 60.0
    remote_wait_s: float = 0.5
    failure_pause_s: float = 0.1
    concurrent_reads: int = 8


class FetchRound:
    """One fetch of one client. ``run`` may be cancelled anywhere; the connection gives the memory back."""

    def __init__(
        self,
        demand: FetchDemand,
        isolation: IsolationLevel,
        parts: Sequence[FetchPart],
        *,
        lookup: PartitionLookup,
        limits: FetchLimits,
        clock: Clock,
        failures: FailureLog,
        context: RequestContext,
    ) -> None:
        """Prepare to answer ``demand``, whose partitions are ``parts``."""
        self._parts = parts
        self._isolation = isolation
        self._max_bytes = min(demand.max_bytes, limits.max_bytes)
        self._min_bytes = min(demand.min_bytes, self._max_bytes)  # as a broker: no answer can have more
        self._lookup = lookup
        self._limits = limits
        self._clock = clock
        self._failures = failures
        self._context = context
        self._deadline_s = clock.monotonic_s() + min(demand.max_wait_s, limits.max_wait_s)
        self.waited_s = 0.0
        """Time that was spent waiting for records to come."""

    async def run(self) -> None:
        """Bring every part to its answer."""
        await self._take_bounds(self._parts)
        await self._read()
        if not self._is_due():
            await self._wait()
        async for part in self._context.turns.pieces(self._parts):
            part.conclude(self._isolation, self._lookup.cluster)
            if part.answer.error is ErrorCode.offset_not_available and part.bounds is not None:
                self._failures.beyond_end(part, part.bounds)
        await self._pause()

    # ---------------------------------------------------------------------------------------------------- bounds

    async def _take_bounds(self, parts: Iterable[FetchPart]) -> None:
        """Take the present bounds of the logs."""
        await self._each([part for part in parts if not part.is_settled], self._take_bounds_of)

    async def _take_bounds_of(self, part: FetchPart) -> None:
        assert part.log is not None, "a part without a log is settled"
        try:
            bounds = await part.log.bounds()
            part.see(bounds, self._isolation)
            if part.wanted.last_fetched_epoch >= 0 and not part.is_settled:
                await self._compare_epochs(part, bounds.leader_epoch)
        except TierError as error:
            self._fail(part, error)

    async def _compare_epochs(self, part: FetchPart, latest_epoch: int) -> None:
        assert part.log is not None, "a part without a log is settled"
        found = await part.log.epoch_end(part.wanted.last_fetched_epoch)
        match divergence(part.wanted, found, latest_epoch):
            case None:
                pass
            case ErrorCode() as error:
                part.fail(error)
            case diverging:
                assert part.bounds is not None, "bounds come before epochs"
                answer = PartitionAnswer.empty(part.bounds, self._isolation)
                part.settle(answer.diverging_at(diverging))

    # ----------------------------------------------------------------------------------------------------- reads

    async def _read(self) -> None:
        """Read all parts that have records, within the limits; records of an earlier pass are read again."""
        now_s = self._clock.monotonic_s()
        parts = [part for part in self._parts if part.is_readable(self._isolation, now_s)]
        if not parts:
            return
        limits = [ReadLimit(part.wanted.max_bytes, part.needs_memory) for part in parts]
        memory = self._context.memory
        needed = memory_bytes(limits, max_bytes=self._max_bytes)
        granted = await memory.reserve(needed) if needed else 0
        plan = FetchPlan(limits, max_bytes=self._max_bytes, memory_bytes=granted)

        async def work() -> None:
            while (read := plan.next_read()) is not None:
                await self._read_part(parts[read.index], read)
                part = parts[read.index]
                plan.finished(read, part.size_bytes, may_be_too_large=part.found_nothing)

        await self._at_once(work, len(parts))
        kept = plan.kept()
        for index, part in enumerate(parts):
            if index not in kept:
                part.give_up_records()
        held = sum(part.answer.bytes_in_memory for part in parts)
        if held or memory.size_bytes:
            memory.settle(held)

    async def _read_part(self, part: FetchPart, read: PlannedRead) -> None:
        assert part.log is not None, "a part without a log is settled"
        now_s = self._clock.monotonic_s()
        wait_s = min(self._limits.remote_wait_s, max(_MIN_REMOTE_WAIT_S, self._deadline_s - now_s))
        try:
            found = await part.log.read(
                part.wanted.offset,
                max_bytes=read.max_bytes,
                isolation=self._isolation,
                at_least_one=read.at_least_one,
                max_wait_s=wait_s,
                bounds=part.bounds,
            )
        except OffsetOutOfRangeError as error:
            await self._out_of_range(part, error)
        except TierError as error:
            self._fail(part, error)
        else:
            part.take(found, self._isolation, self._clock.monotonic_s())

    async def _out_of_range(self, part: FetchPart, error: OffsetOutOfRangeError) -> None:
        """Find out why a read between log start and end was out of range.

        Either the bounds have moved, or the log has a hole: records that are neither local nor in the tier. A client
        must not pass over a hole, so it does not learn of it as an offset out of range, which would make it reset its
        position. It keeps asking, and the log of the daemon says what is missing.
        """
        await self._take_bounds_of(part)
        if part.is_readable(self._isolation, self._clock.monotonic_s()):
            self._failures.hole(part, error)
            part.fail(ErrorCode.kafka_storage_error)

    def _fail(self, part: FetchPart, error: TierError) -> None:
        code = error_code_for(error, AskedFor.FETCH, version=_NEWEST_VERSION)
        self._failures.failed(part, error)
        part.fail(code)

    # ----------------------------------------------------------------------------------------------------- waits

    def _is_due(self) -> bool:
        """Return True if the answer is to be sent now."""
        if self._is_over():
            return True
        size_bytes = 0
        for part in self._parts:
            size_bytes += part.answer.size_bytes
            if part.is_settled or part.is_pending or (part.has_more and part.answer.records):
                return True
        return size_bytes >= self._min_bytes

    def _is_over(self) -> bool:
        is_late = self._clock.monotonic_s() >= self._deadline_s
        return is_late or not self._parts or self._context.closing.is_set()

    async def _wait(self) -> None:
        """Wait for changes until the answer is due. A wait holds no records: all of them are read again after it."""
        logs = [part.log for part in self._parts if part.log is not None]
        assert len(logs) == len(self._parts), "a part without a log is settled, and its answer due"
        with listening(logs, self._clock, self._context.closing) as changes:
            while not self._is_due():
                for part in self._parts:
                    part.give_up_records()
                await self._wait_for_reads(changes)
                await self._read()

    async def _wait_for_reads(self, changes: LogChanges) -> None:
        """Return when reading is worth its while: the records may suffice now, a part has failed, or time is over."""
        while True:
            began_s = self._clock.monotonic_s()
            await changes.wait(until_s=self._next_time(began_s))
            self.waited_s += self._clock.monotonic_s() - began_s
            if self._lookup.has_changed():
                for part in self._parts:
                    self._lookup.check_again(part)
            await self._take_bounds([self._parts[index] for index in changes.take()])
            if self._is_over() or self._is_worth_reading():
                return

    def _next_time(self, now_s: float) -> float:
        held = (part.held_until_s for part in self._parts if part.held_until_s > now_s)
        return min((self._deadline_s, *held))

    def _is_worth_reading(self) -> bool:
        """Return True if a part has failed, or if half of the wanted bytes that lacked at the last read may have come.

        Bytes of batches are only known by reading them. So a read waits until the offsets that have come promise half
        of what lacked: then a client that waits for much is not read for once per batch, and rarely waits too long.
        """
        now_s = self._clock.monotonic_s()
        if any(part.is_settled for part in self._parts):
            return True
        readable = [part for part in self._parts if part.is_readable(self._isolation, now_s)]
        lacking = self._min_bytes - sum(part.size_bytes for part in readable)
        return sum(part.expected_bytes(self._isolation) for part in readable) >= max(1, lacking / 2)

    async def _pause(self) -> None:
        """Hold an answer back that would only make its client ask again at once."""
        if any(part.answer.records for part in self._parts) or all(part.answer.is_prompt for part in self._parts):
            return
        now_s = self._clock.monotonic_s()
        pause = LogChanges(0, self._clock, self._context.closing)
        await pause.wait(until_s=min(self._deadline_s, now_s + self._limits.failure_pause_s))
        self.waited_s += self._clock.monotonic_s() - now_s

    # ----------------------------------------------------------------------------------------------- concurrency

    async def _each(self, parts: Sequence[FetchPart], act: Callable[[FetchPart], Awaitable[None]]) -> None:
        rest = iter(enumerate(parts, start=1))

        async def work() -> None:
            for place, part in rest:
                if not place % _PARTS_PER_TURN:
                    await self._context.turns.take()
                await act(part)

        await self._at_once(work, len(parts))

    async def _at_once(self, work: Callable[[], Awaitable[None]], count: int) -> None:
        """Run ``work`` several times at once, since each takes what is left; once for one part, without a task."""
        if count < 2:
            await work()
            return
        async with asyncio.TaskGroup() as group:
            for number in range(min(count, self._limits.concurrent_reads)):
                group.create_task(_run(work), name=f"reads of a fetch {number}")


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
