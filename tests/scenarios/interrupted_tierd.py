"""``tierd`` that is killed or frozen at a step between job and leader, with a job that needs no Spark.

::

    python -m tests.scenarios.interrupted_tierd <folder> <step> SIGKILL run --config tierd.yaml
"""

import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.scenarios.plain_submit import installed
from tierd.pipeline.running.requirements import SparkInstallation

NEVER = "never"
STEPS = ("begun", "staged", "manifest", "committed")
"""Rows written; objects written by the job; the leader's manifest; one atomic batch. Each of the second group."""

Step = Callable[..., Awaitable[object]]


def command(folder: Path, step: str = NEVER, number: signal.Signals = signal.SIGKILL) -> tuple[str, ...]:
    """Return the beginning of a command line; the arguments of ``tierd`` follow it."""
    return (sys.executable, "-m", __name__, str(folder), step, number.name)


def replace_spark(folder: Path) -> None:
    """Have tierd in this process find a Spark in ``folder`` whose jobs run without Spark."""
    from tierd.app.spark import build_pipeline  # noqa: PLC0415 - ``command`` needs no import

    spark = installed(folder)

    async def find_spark(java_home: Path | None) -> SparkInstallation:
        del java_home
        return spark

    setattr(build_pipeline, find_spark.__name__, find_spark)


def _main() -> None:
    from tierd.cli import main  # noqa: PLC0415 - ``command`` needs no import

    # A shell that runs the tests in the background ignores SIGINT, and all child processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, folder, step, number, *arguments = sys.argv
    replace_spark(Path(folder))
    if step != NEVER:
        _interrupt(step, functools.partial(os.kill, os.getpid(), signal.Signals[number]))
    sys.argv = ["tierd", *arguments]
    main()


def _interrupt(step: str, stop: Callable[[], None]) -> None:
    """Have ``stop`` called at the step."""
    from tierd.metadata import RemoteLogMetadataManager  # noqa: PLC0415 - as above
    from tierd.remote import SegmentStorage  # noqa: PLC0415 - the same

    owner, name, wrap, call = {
        "begun": (RemoteLogMetadataManager, "begin_outputs", _ending, 1),  # one batch for all groups of a partition
        "staged": (SegmentStorage, "commit_log_segment", _beginning, 2),
        "manifest": (SegmentStorage, "commit_log_segment", _ending, 2),
        "committed": (RemoteLogMetadataManager, "replace_segments", _ending, 2),
    }[step]
    setattr(owner, name, wrap(getattr(owner, name), stop, call=call))


def _beginning(step: Step, stop: Callable[[], None], *, call: int) -> Step:
    calls = iter(range(1, sys.maxsize))

    @functools.wraps(step)
    async def stopped(*args: object, **kwargs: object) -> object:
        if next(calls) == call:
            stop()
        return await step(*args, **kwargs)

    return stopped


def _ending(step: Step, stop: Callable[[], None], *, call: int) -> Step:
    calls = iter(range(1, sys.maxsize))

    @functools.wraps(step)
    async def stopped(*args: object, **kwargs: object) -> object:
        done = await step(*args, **kwargs)
        if next(calls) == call:
            stop()
        return done

    return stopped


if __name__ == "__main__":
    _main()
