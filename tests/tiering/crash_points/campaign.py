"""Kill of one operation at every point, each time in a fresh copy of the same world, and the processes after it."""

import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from tests.tiering.crash_points.burial import run_until_killed
from tests.tiering.crash_points.invariants import (
    check_at_death,
    check_at_rest,
    check_rebuild_at_death,
    check_tombstones,
    is_at_rest,
    stored_ids,
)
from tests.tiering.crash_points.operations import Operation, Preparation
from tests.tiering.crash_points.points import Points
from tests.tiering.crash_points.world import GRACE_S, SUCCESSORS, Process, World, new_world

_ROUNDS = 5
_BETWEEN_ROUNDS_S = 3 * GRACE_S  # past every grace, and past the hour that a deletion is left to its first process
_LATER_MS = 1000


class CrashPointError(AssertionError):
    """Broken invariant, with the point and the command that runs this point alone."""


@dataclass(frozen=True, slots=True)
class Template:
    """World before an operation: its files, its rows, the ids of its segments, and the segments with objects."""

    operation: Operation
    world: World
    rows: dict[str, bytes]
    ids: frozenset[UUID]
    stored: frozenset[UUID]


class Victim(Protocol):
    """Process that runs an operation and dies at a point, of those whose description contains ``place``."""

    def __call__(self, world: World, operation: Operation, at: int | None, *, place: str) -> Points:
        """Return the counted points; with ``at`` None the process lives."""


class _VictimAtPlace(Protocol):
    def __call__(self, world: World, operation: Operation, at: int | None) -> Points: ...


def template_of(operation: Operation, root: Path) -> Template:
    """Build the world that the operation begins with."""
    world = new_world(root)
    for preparation in operation.before:
        _prepare(world, preparation)
    world.policy = operation.policy
    ids: set[UUID] = set()
    stored: set[UUID] = set()
    rows: dict[str, bytes] = {}

    async def look() -> None:
        async with world.metadata() as store:
            ids.update(await check_at_death(world, store))
        stored.update(await stored_ids(world))
        rows.update(await world.rows())

    _run(look)
    return Template(operation, world, rows, frozenset(ids), frozenset(stored))


def kill_here(world: World, operation: Operation, at: int | None, *, place: str) -> Points:
    """Kill a victim in this process: its loop is abandoned and buried. For metadata in memory."""
    points = Points(at=at, place=place)
    run_until_killed(points, lambda: lived(world, operation, points))
    return points


async def lived(world: World, operation: Operation, points: Points) -> None:
    """Run the life of a process whose death is planned."""
    async with world.metadata() as store:
        process = Process(world, store, points=points)
        points.now_ms = process.clock.now_ms
        points.begin()
        await operation.act(process)
        points.end()
        await process.close()


class Campaign:
    """Campaign of one operation on one backend."""

    def __init__(self, template: Template, root: Path, *, address: str, victim: _VictimAtPlace) -> None:
        """Store the arguments.

        Args:
            template: the world before.
            root: folder of the worlds, one at a time.
            address: of the metadata.
            victim: runs and kills.
        """
        self._template = template
        self._folder = root / "world"
        self._address = address
        self._victim = victim

    def run(self, successors: Sequence[str], *, is_alternating: bool = False) -> int:
        """Kill at point 1, then at point 2, until the operation lives to its end; return the number of its points.

        Args:
            successors: processes that continue after each point: ``restart``, ``takeover`` or both.
            is_alternating: one of them after each point, in turn.

        Raises:
            CrashPointError: an invariant broke.
        """
        at, was_killed = 0, True
        while was_killed:
            at += 1
            chosen = [successors[at % len(successors)]] if is_alternating else successors
            for who in chosen:
                was_killed = self.kill_at(at, who)
        return at - 1

    def kill_at(self, at: int, who: str) -> bool:
        """Kill at one point and let ``who`` continue; return False when the operation has fewer points.

        Raises:
            CrashPointError: an invariant broke.
        """
        operation = self._template.operation
        shutil.rmtree(self._folder, ignore_errors=True)
        world = self._template.world.copy_to(self._folder, self._address)
        _run(lambda: world.fill(self._template.rows))
        points = self._victim(world, operation, at)
        world.now_ms = points.now_ms() + _LATER_MS
        try:
            _run(lambda: _go_on(world, self._template, SUCCESSORS[who]))
        except Exception as error:
            raise CrashPointError(
                f"{operation.name}, killed at point {at} ({points.place or 'not killed'}), then a {who}: {error}\n"
                f"alone, with the same --backend and --place: "
                f"python -m tests.tiering.crash_points {operation.name} --at {at} --then {who}"
            ) from error
        return points.is_dead


async def _go_on(world: World, template: Template, broker_id: int) -> None:
    operation = template.operation
    acts_in_round = operation.taken_over_in_round if broker_id == SUCCESSORS["takeover"] else 0
    async with world.metadata() as store:
        ids = template.ids | await check_at_death(world, store)
        stored = template.stored | await stored_ids(world)
        if operation.rebuilds:
            await check_rebuild_at_death(world)
        process = Process(world, store, broker_id=broker_id)
        for number in range(_ROUNDS):
            await operation.again(process)
            if number == acts_in_round:
                await check_tombstones(world, store)
            if await is_at_rest(process):
                break
            process.clock.advance(_BETWEEN_ROUNDS_S)
        await check_at_rest(process, ids, operation.readable, stored)
        await process.close()


def _prepare(world: World, preparation: Preparation) -> None:
    world.policy = preparation.policy
    operation = Operation("prepare", preparation.act, preparation.act)
    points = Points(at=None) if preparation.dies is None else preparation.dies()
    run_until_killed(points, lambda: lived(world, operation, points))
    assert points.is_dead == (preparation.dies is not None)
    world.now_ms = points.now_ms() + round(preparation.later_s * 1000)


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work without a kill on the same kind of loop: a loop without threads is much faster."""
    run_until_killed(Points(at=None), work)
