"""LeaderWatch: notices at once that the leader has gone, and reports the progress of the run to it."""

import os
import select
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tierd.errors import PipelineError
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.jobs.job_progress import JobProgress
from tierd.pipeline.pipeline_errors import LeaderChannelError

_PROGRESS_INTERVAL_S: Final = 2.0


class LeaderWatch:
    """Thread beside the run, as a context manager; the end of the context ends the thread.

    Args:
        leader: the connection, which is not closed here.
        progress: of the run.
        on_gone: called once from the thread when the leader is gone.
        interval_s: time between two reports.
    """

    def __init__(
        self,
        leader: LeaderClient,
        progress: JobProgress,
        *,
        on_gone: Callable[[], None],
        interval_s: float = _PROGRESS_INTERVAL_S,
    ) -> None:
        self._leader = leader
        self._progress = progress
        self._on_gone = on_gone
        self._interval_s = interval_s
        self._is_over = os.eventfd(0)
        self._thread = threading.Thread(target=self._watch, name="leader-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.eventfd_write(self._is_over, 1)
        self._thread.join()
        os.close(self._is_over)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._is_over, select.POLLIN)
        poll.register(self._leader.fileno(), select.POLLRDHUP)
        while not (events := poll.poll(self._interval_s * 1000)) and self._report():
            pass
        if self._is_over not in {descriptor for descriptor, _ in events}:
            self._on_gone()

    def _report(self) -> bool:
        """Report the progress; return True if the leader is still there."""
        stage, done, total = self._progress.reached()
        try:
            self._leader.progress(stage, done=done, total=total)
        except LeaderChannelError:
            return False
        except PipelineError:
            return True
        return True
