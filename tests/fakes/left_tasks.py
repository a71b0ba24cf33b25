"""Remains of a coroutine: tasks that still run, and errors that were not retrieved."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tierd.tasks import drop_task


@contextmanager
def nothing_left() -> Iterator[None]:
    """Require that what runs meanwhile leaves no task that has not ended, and no error for asyncio to report."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        yield
        assert asyncio.all_tasks() - before == set()
        gc.collect()  # a task reports its error when it goes
        assert reported == []
    finally:
        for task in asyncio.all_tasks() - before:
            drop_task(task)  # its error would come in the middle of another test, or of the report of this one
        loop.set_exception_handler(None)
