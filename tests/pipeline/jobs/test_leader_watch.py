import socket
import threading
from collections.abc import Iterator

import pytest

from tests.fakes.clock import FakeClock
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.jobs.job_progress import JobProgress, Stage
from tierd.pipeline.jobs.leader_watch import LeaderWatch

DEADLINE_S = 60.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_job_notices_at_once_that_its_leader_hangs_up(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    gone = threading.Event()
    leader = LeaderClient(ours, answer_timeout_s=DEADLINE_S, clock=FakeClock())
    with LeaderWatch(leader, JobProgress(), on_gone=gone.set, interval_s=3600):
        assert not gone.is_set()
        theirs.close()
        assert gone.wait(DEADLINE_S)


def test_end_of_a_run_is_no_hang_up_and_does_not_wait(ends: tuple[socket.socket, socket.socket]) -> None:
    gone = threading.Event()
    leader = LeaderClient(ends[0], answer_timeout_s=DEADLINE_S, clock=FakeClock())
    with LeaderWatch(leader, JobProgress(), on_gone=gone.set, interval_s=3600):
        pass
    assert not gone.is_set()


def test_progress_of_the_run_is_sent_to_the_leader_at_intervals(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    progress = JobProgress()
    progress.begin(Stage.REWRITE, 100)
    progress.advance(70)
    progress.advance(70)
    leader = LeaderClient(ours, answer_timeout_s=DEADLINE_S, clock=FakeClock())
    with LeaderWatch(leader, progress, on_gone=lambda: None, interval_s=0.001):
        line = theirs.recv(1000)
        assert b'"stage":"rewriting","done":100,"total":100' in line
        theirs.close()
