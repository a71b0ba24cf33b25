"""Tasks that run together or one ahead, and their end. A cancellation of the owner leaves none of them behind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking ``work`` in a thread, as ``run_to_end``: a cancellation leaves nothing behind that still writes."""
    return await run_to_end(asyncio.to_thread(work, *args, **kwargs))


async def run_to_end(work: Coroutine[Any, Any, T], *, name: str | None = None) -> T:
    """Run ``work`` to its end, then return its result or raise its error.

    A cancellation of the caller waits for the end of the work and is raised then, also where the work has failed.

    Args:
        work: runs as a task of its own.
        name: of the task.
    """
    return await result_of(asyncio.create_task(work, name=name))


async def result_of(task: asyncio.Task[T]) -> T:
    """Wait for the end of a task, then return its result or raise its error; a cancellation as in ``run_to_end``."""
    try:
        await wait_all([task])
    except asyncio.CancelledError as cancellation:
        raise cancellation from task.exception()
    return task.result()


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all have ended; what they return or raise is left to their owner.

    A cancellation of the caller is raised when they have ended.
    """
    found = set(tasks)
    for task in found:
        task.cancel()
    await wait_all(found)


def drop_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and drop its result or error. The owner of the task waits for its end."""
    task.add_done_callback(retrieve)
    task.cancel()


async def wait_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all ``tasks`` have ended; a cancellation of the caller is raised only then, and reaches none of them.

    For tasks that end soon, such as cancelled ones.
    """
    waiting = set(tasks)
    cancellation: asyncio.CancelledError | None = None
    while waiting:
        try:
            _, waiting = await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancellation = error
            waiting = {task for task in waiting if not task.done()}
    if cancellation is not None:
        raise cancellation


async def together(works: Mapping[str, Callable[[], Coroutine[Any, Any, T]]], *, at_once: int | None = None) -> list[T]:
    """Return the results of ``works``, in their order. The first failure ends the others, and is raised alone.

    Args:
        works: each is called once, in a task of the name.
        at_once: so many run at the same time; None: all.
    """
    slots = asyncio.Semaphore(at_once or max(len(works), 1))

    async def one(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with slots:
            return await work()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work), name=name) for name, work in works.items()]
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None
    return [task.result() for task in tasks]


def retrieve(task: asyncio.Future[Any]) -> None:
    """Take the error of a task that has ended: perhaps no caller waits for it, and asyncio logs one left behind."""
    if not task.cancelled():
        task.exception()


def first_error(errors: BaseExceptionGroup[E]) -> E:
    """Return the first error of a group, as a ``TaskGroup`` raises it, of whatever depth."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return cast("E", found)


def raise_if_cancelled() -> None:
    """Raise the cancellation of this task that a ``TaskGroup`` has replaced with the errors of its tasks.

    Python 3.11 raises these alone where both come at once; a caller that handles them and goes on would never end.

    Raises:
        CancelledError: the task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def one_ahead(items: AsyncGenerator[T, None], *, name: str) -> AsyncGenerator[T, None]:
    """Yield the items of ``items``, which is closed at the end; a failure comes behind the items before it.

    Args:
        items: makes the items.
        name: of the task that makes them.
    """
    ahead = asyncio.create_task(_next(items), name=name)
    try:
        while found := await ahead:
            ahead = asyncio.create_task(_next(items), name=name)
            yield found[0]
    finally:
        drop_task(ahead)  # the caller has stopped for another reason than its failure, or was told
        try:
            await wait_all([ahead])
        finally:
            await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> "tuple[T] | tuple[()]":
    """Return the next item; nothing at the end."""
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return ()
