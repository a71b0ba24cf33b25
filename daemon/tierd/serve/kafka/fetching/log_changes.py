"""LogChanges: the wait of one request for changes of several logs, without polling."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tierd.clock import Clock
from tierd.serve.kafka.served.served_log import ServedLog


class LogChanges:
    """Changes of some logs since they were taken last."""

    def __init__(self, count: int, clock: Clock, closing: asyncio.Event) -> None:
        """Take note of the changes of ``count`` logs; all count as changed at first."""
        self._changed = set(range(count))
        self._wake = asyncio.Event()
        self._clock = clock
        self._closing = closing

    def listener(self, index: int) -> Callable[[], None]:
        """Return the function that a log calls when it has changed."""

        def on_change() -> None:
            self._changed.add(index)
            self._wake.set()

        return on_change

    def take(self) -> list[int]:
        """Return the indices of the logs that have changed, ascending, and begin anew."""
        taken = sorted(self._changed)
        self._changed.clear()
        self._wake.clear()
        return taken

    async def wait(self, *, until_s: float) -> None:
        """Return when a log has changed, the time has come, or the endpoint stops."""
        left_s = until_s - self._clock.monotonic_s()
        if self._changed or self._closing.is_set() or left_s <= 0:
            return
        self._wake.clear()
        async with asyncio.TaskGroup() as group:
            ends = (
                group.create_task(self._clock.sleep(left_s), name="deadline of a fetch"),
                group.create_task(self._closing.wait(), name="end of the endpoint"),
            )
            for end in ends:
                end.add_done_callback(lambda _: self._wake.set())
            await self._wake.wait()
            for end in ends:
                end.cancel()


@contextmanager
def listening(logs: Sequence[ServedLog], clock: Clock, closing: asyncio.Event) -> Iterator[LogChanges]:
    """Listen to ``logs`` until the block ends."""
    changes = LogChanges(len(logs), clock, closing)
    leave: list[Callable[[], object]] = []
    try:
        leave.extend(log.listen(changes.listener(index)) for index, log in enumerate(logs))
        yield changes
    finally:
        for each in leave:
            each()
