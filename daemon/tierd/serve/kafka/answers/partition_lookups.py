"""Lookups of one request in the logs of several partitions: some at once, all within one deadline.

A lookup that fails is a warning in the log, however often clients ask.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.rare_lines import RareLines
from tierd.serve.kafka.loop_turns import ClientTurns

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_LOOKUPS_PER_TURN: Final = 8


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """Limits of one request.

    Attributes:
        at_once: largest number of partitions that are looked at at the same time.
        timeout_s: time that an answer may take (Kafka: remote.list.offsets.request.timeout.ms). A client may ask for
            less.
    """

    at_once: int = 16
    timeout_s: float = 30.0


async def outcomes_of(
    lookups: Sequence[Callable[[], Awaitable[T]]], *, at_once: int, timeout_s: float, turns: ClientTurns
) -> list[T | Exception]:
    """Return the result of every lookup, or its error, in order; a ``TimeoutError`` for those that were too slow.

    A cancelled call cancels the lookups that are under way.

    Args:
        lookups: functions that begin a lookup.
        at_once: number of lookups that may be under way.
        timeout_s: for all of them together.
        turns: one is taken for some lookups each, of which many end without a wait.
    """
    outcomes: list[T | Exception] = [TimeoutError() for _ in lookups]
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    remaining = iter(enumerate(lookups))

    async def work() -> None:
        for index, look_up in remaining:
            if not (index + 1) % _LOOKUPS_PER_TURN:
                await turns.take()
            try:
                async with asyncio.timeout_at(deadline_s):
                    outcomes[index] = await look_up()
            except Exception as error:  # noqa: BLE001 - each partition has an outcome of its own
                outcomes[index] = error

    if len(lookups) == 1:
        await work()
        return outcomes
    async with asyncio.TaskGroup() as group:
        for number in range(min(at_once, len(lookups))):
            group.create_task(work(), name=f"partition lookups {number}")
    return outcomes


class LookupFailures:
    """Warnings about failed lookups: ``RareLines`` of a kind and partition."""

    def __init__(self, clock: Clock) -> None:
        """Write lines at times of ``clock``."""
        self._lines = RareLines(clock)

    def failed(self, event: str, partition: str, error: Exception) -> None:
        """Write that a lookup failed or was too slow; a bug is written where its code is chosen."""
        if isinstance(error, TierError | TimeoutError) and self._lines.is_due((event, partition)):
            remedy = error.remedy if isinstance(error, TierError) else ""
            _log.warning(event, partition=partition, error=str(error) or "too slow", remedy=remedy)
