"""LogWriter: calls that wait together share a write and a sync; no caller can tear or starve another."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tierd.errors import LogDirOfflineError, LogError, TierErrorCode
from tierd.log.log_errors import AppendError, LogBusyError, LogClosedError, LogTimeoutError
from tierd.log.log_writer import LogWriter, WriterLimits
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.testing import cancel_at

REFUSED = b"refused"


class RecordedLog:
    """A log that records its calls; every job waits for the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.events: list[object] = []
        self.flush_error: LogError | None = None
        self.bug: Exception | None = None
        self.end_offset = 0

    def append_many(self, requests: Sequence[AppendRequest], *, now_ms: int) -> Sequence[AppendInfo | LogError]:
        assert self.gate.wait(timeout=10)
        self.events.append([bytes(request.records) for request in requests])
        if self.bug is not None:
            raise self.bug
        return [self._append(request, now_ms) for request in requests]

    def _append(self, request: AppendRequest, now_ms: int) -> AppendInfo | LogError:
        if request.records == REFUSED:
            return AppendError("a gap", code=TierErrorCode.OUT_OF_ORDER_SEQUENCE)
        self.end_offset += 1
        offset = self.end_offset - 1
        return AppendInfo(offset, offset, now_ms, offset, -1, 0, len(request.records))

    def flush(self, *, including_active: bool = False, now_ms: int | None = None) -> None:
        self.events.append("flush" if including_active else "flush rolled")
        if self.flush_error is not None:
            raise self.flush_error


@pytest.fixture
def log() -> RecordedLog:
    return RecordedLog()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


MakeWriter = Callable[..., LogWriter[RecordedLog]]


@pytest.fixture
async def make_writer(log: RecordedLog, threads: ThreadPoolExecutor) -> AsyncIterator[MakeWriter]:
    def make(**limits: float) -> LogWriter[RecordedLog]:
        return LogWriter(
            log,
            name="topic-0",
            writers=threads,
            readers=threads,
            clock=FakeClock(),
            limits=WriterLimits(**limits),  # type: ignore[arg-type]  # a test names a limit and gives a number
        )

    yield make
    log.gate.set()


@pytest.fixture
def writer(make_writer: MakeWriter) -> LogWriter[RecordedLog]:
    return make_writer()


def append(writer: LogWriter[RecordedLog], records: bytes, *, durable: bool = False) -> asyncio.Task[AppendInfo]:
    return asyncio.ensure_future(writer.append_as_follower(records, durable=durable))


async def begun(writer: LogWriter[RecordedLog], jobs: int = 1) -> None:
    await eventually(lambda: writer.statistics().jobs == jobs and not writer.statistics().waiting_calls, what="a job")


async def test_concurrent_appends_share_one_write(writer: LogWriter[RecordedLog], log: RecordedLog) -> None:
    answers = await asyncio.gather(*(writer.append_as_follower(b"%d" % number) for number in range(5)))
    assert log.events == [[b"0", b"1", b"2", b"3", b"4"]]
    assert [answer.first_offset for answer in answers] == [0, 1, 2, 3, 4]


async def test_appends_during_a_running_job_are_the_next_group(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    log.gate.clear()
    first = append(writer, b"first")
    await begun(writer)
    later = [append(writer, b"a"), append(writer, b"b")]
    await asyncio.sleep(0)
    log.gate.set()
    await asyncio.gather(first, *later)
    assert log.events == [[b"first"], [b"a", b"b"]]
    assert writer.statistics().jobs == 2


async def test_refused_set_of_a_group_leaves_the_other_sets_written(writer: LogWriter[RecordedLog]) -> None:
    good, refused, other = await asyncio.gather(
        append(writer, b"a"), append(writer, REFUSED), append(writer, b"b"), return_exceptions=True
    )
    assert isinstance(refused, AppendError)
    assert refused.code is TierErrorCode.OUT_OF_ORDER_SEQUENCE
    assert isinstance(good, AppendInfo)
    assert isinstance(other, AppendInfo)
    assert (good.last_offset, other.last_offset) == (0, 1)


async def test_durable_appends_share_one_sync_and_others_need_none(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    await writer.append_as_leader(b"a", leader_epoch=3)
    assert "flush" not in log.events
    await asyncio.gather(append(writer, b"b", durable=True), append(writer, b"c"), append(writer, b"d", durable=True))
    assert log.events == [[b"a"], [b"b", b"c", b"d"], "flush"]
    assert writer.statistics().syncs == 1


async def test_a_durable_set_that_is_refused_needs_no_sync(writer: LogWriter[RecordedLog], log: RecordedLog) -> None:
    with pytest.raises(AppendError, check=coded(TierErrorCode.OUT_OF_ORDER_SEQUENCE)):
        await writer.append_as_follower(REFUSED, durable=True)
    assert log.events == [[REFUSED]]


async def test_failed_sync_is_an_error_for_durable_appends_only(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    log.flush_error = LogDirOfflineError("the disk failed")
    durable, fast, refused = await asyncio.gather(
        append(writer, b"a", durable=True),
        append(writer, b"b"),
        append(writer, REFUSED, durable=True),
        return_exceptions=True,
    )
    assert isinstance(durable, LogDirOfflineError)
    assert isinstance(fast, AppendInfo)
    assert isinstance(refused, AppendError)
    assert refused.code is TierErrorCode.OUT_OF_ORDER_SEQUENCE


async def test_calls_and_appends_run_in_the_order_of_their_requests(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    def truncate(log: RecordedLog) -> str:
        log.events.append("truncate")
        return "done"

    first = append(writer, b"a")
    truncated = asyncio.ensure_future(writer.run(truncate))
    second = append(writer, b"b")
    flushed = asyncio.ensure_future(writer.flush())
    await asyncio.gather(first, second, flushed, append(writer, b"c"))
    assert await truncated == "done"
    assert log.events == [[b"a"], "truncate", [b"b"], "flush", [b"c"]]


async def test_a_group_is_bounded_in_calls_and_in_bytes(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(group_calls=3, group_bytes=10)
    sets = [b"x", b"y", b"z", b"1234567", b"123", b"4", b"larger than any group", b"w"]
    await asyncio.gather(*(append(writer, records) for records in sets))
    assert log.events == [sets[:3], sets[3:5], sets[5:6], sets[6:7], sets[7:]]


async def test_more_calls_than_may_wait_are_refused(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(waiting_calls=2)
    log.gate.clear()
    running = append(writer, b"a")
    await begun(writer)
    waiting = [append(writer, b"b"), append(writer, b"c")]
    await asyncio.sleep(0)
    with pytest.raises(LogBusyError, match="2 calls with 2 bytes wait already") as caught:
        await writer.append_as_follower(b"d")
    assert caught.value.retriable
    log.gate.set()
    await asyncio.gather(running, *waiting)
    assert log.events == [[b"a"], [b"b", b"c"]]


async def test_more_bytes_than_may_wait_are_refused_except_in_a_single_set(
    make_writer: MakeWriter, log: RecordedLog
) -> None:
    writer = make_writer(waiting_bytes=4)
    log.gate.clear()
    running = append(writer, b"12345678")
    await begun(writer)
    waiting = append(writer, b"1234")
    await asyncio.sleep(0)
    with pytest.raises(LogBusyError):
        await writer.append_as_follower(b"5")
    log.gate.set()
    await asyncio.gather(running, waiting)


async def test_cancelled_waiting_append_leaves_its_place_to_another(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(waiting_calls=1)
    log.gate.clear()
    running = append(writer, b"a")
    await begun(writer)
    unwanted = append(writer, b"b")
    await asyncio.sleep(0)
    unwanted.cancel()
    await asyncio.wait({unwanted})
    last = append(writer, b"c")
    await asyncio.sleep(0)
    log.gate.set()
    await asyncio.gather(running, last)
    assert log.events == [[b"a"], [b"c"]]


async def test_running_append_of_a_cancelled_caller_is_completed(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    log.gate.clear()
    first = append(writer, b"a")
    await begun(writer)
    first.cancel()
    await asyncio.wait({first})
    second = append(writer, b"b")
    log.gate.set()
    assert (await second).first_offset == 1
    assert first.cancelled()
    assert log.events == [[b"a"], [b"b"]]


async def test_deadline_ends_running_and_waiting_calls_with_an_error(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(deadline_s=1.0)
    log.gate.clear()
    running = append(writer, b"a")
    await begun(writer)
    waiting = append(writer, b"b")
    found = await asyncio.gather(running, waiting, return_exceptions=True)
    assert all(isinstance(error, LogTimeoutError) for error in found)
    log.gate.set()
    assert (await append(writer, b"c")).first_offset == 1
    assert log.events == [[b"a"], [b"c"]]


async def test_read_does_not_wait_for_a_running_append(writer: LogWriter[RecordedLog], log: RecordedLog) -> None:
    log.gate.clear()
    running = append(writer, b"a")
    await begun(writer)
    assert await writer.read(lambda log: log.end_offset) == 0
    log.gate.set()
    await running


async def test_hanging_read_ends_at_its_deadline(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(deadline_s=1.0)
    log.gate.clear()
    with pytest.raises(LogTimeoutError):
        await writer.read(lambda log: log.gate.wait(timeout=10))
    log.gate.set()


async def test_error_of_a_call_is_raised_to_its_caller(writer: LogWriter[RecordedLog]) -> None:
    def fail(log: RecordedLog) -> None:
        raise LogDirOfflineError("gone")

    with pytest.raises(LogDirOfflineError):
        await writer.run(fail)
    with pytest.raises(LogDirOfflineError):
        await writer.read(fail)
    assert (await append(writer, b"a")).first_offset == 0


async def test_bug_in_a_group_is_raised_to_each_caller_and_the_writer_goes_on(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    log.bug = ZeroDivisionError()
    found = await asyncio.gather(append(writer, b"a"), append(writer, b"b"), return_exceptions=True)
    assert [type(error) for error in found] == [ZeroDivisionError] * 2
    log.bug = None
    assert (await append(writer, b"c")).first_offset == 0


async def test_close_completes_waiting_calls_and_refuses_later_ones(
    writer: LogWriter[RecordedLog], log: RecordedLog
) -> None:
    log.gate.clear()
    appends = [append(writer, b"a"), append(writer, b"b")]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    with pytest.raises(LogClosedError):
        await writer.append_as_follower(b"late")
    log.gate.set()
    await closing
    assert all(task.done() for task in appends)
    await writer.close()
    assert log.events == [[b"a", b"b"]]


async def test_close_during_a_hanging_write_is_a_timeout_error(make_writer: MakeWriter, log: RecordedLog) -> None:
    writer = make_writer(deadline_s=1.0)
    log.gate.clear()
    running = append(writer, b"a")
    await begun(writer)
    with pytest.raises(LogTimeoutError):
        await writer.close()
    log.gate.set()
    with pytest.raises(LogTimeoutError):
        await running
    await writer.close()


@pytest.mark.parametrize("suspension", [1, 2, 3])
async def test_cancellation_at_any_await_leaves_each_set_whole_or_absent_and_the_writer_usable(
    writer: LogWriter[RecordedLog], log: RecordedLog, suspension: int
) -> None:
    async def all_calls() -> None:
        await writer.append_as_follower(b"a", durable=True)
        await writer.run(lambda log: log.events.append("run"))
        await writer.read(lambda log: log.end_offset)

    assert await cancel_at(suspension, all_calls)
    assert (await append(writer, b"z")).first_offset in {0, 1}
    assert log.events[-1] == [b"z"]
    await writer.close()


async def test_shut_down_threads_are_an_error_for_waiting_callers(log: RecordedLog) -> None:
    threads = ThreadPoolExecutor(1)
    writer = LogWriter(log, name="topic-0", writers=threads, readers=threads, clock=FakeClock())
    log.gate.clear()
    first = append(writer, b"a")
    await begun(writer)
    second = append(writer, b"b")
    threads.shutdown(wait=False)
    log.gate.set()
    assert (await first).first_offset == 0
    with pytest.raises(LogClosedError):
        await second
    with pytest.raises(LogClosedError):
        await writer.append_as_follower(b"c")
    await writer.close()
