"""Blocking jobs of the pages: a disk that hangs keeps a bounded number of threads."""

import threading
from collections.abc import Iterator

import pytest

from tests.fakes.eventually import eventually
from tierd.app.daemon.bounded_jobs import BoundedJobs


@pytest.fixture
def disk() -> Iterator[threading.Event]:
    """Return the event that jobs wait for, which is set at the end."""
    awake = threading.Event()
    yield awake
    awake.set()


async def test_job_that_ends_in_time_gives_its_result_or_raises_its_error() -> None:
    jobs = BoundedJobs()
    assert await jobs.run(lambda: 7, default=0) == 7
    with pytest.raises(ZeroDivisionError):
        await jobs.run(lambda: 1 // 0, default=0)


async def test_hanging_jobs_keep_their_threads_and_later_ones_are_not_begun(disk: threading.Event) -> None:
    jobs = BoundedJobs(at_once=2, timeout_s=0.01)
    begun: list[int] = []

    def hang() -> int:
        begun.append(1)
        disk.wait()
        return 1

    assert [await jobs.run(hang, default=-1) for _ in range(5)] == [-1] * 5
    assert len(begun) <= 2
    assert await jobs.run(lambda: 7, default=-1) == -1
    disk.set()
    await eventually(lambda: not jobs.is_full, what="the threads to come back")
    assert await jobs.run(lambda: 7, default=-1) == 7


async def test_job_that_fails_after_its_deadline_is_no_unretrieved_error(disk: threading.Event) -> None:
    jobs = BoundedJobs(at_once=1, timeout_s=0.01)

    def fail() -> int:
        disk.wait()
        raise OSError("gone")

    assert await jobs.run(fail, default=-1) == -1
    disk.set()
    await eventually(lambda: not jobs.is_full, what="the threads to come back")
    assert await jobs.run(lambda: 7, default=-1) == 7
