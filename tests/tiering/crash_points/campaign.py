"""Kill of one operation at every point, each time in a fresh copy of the same world, and the processes after it."""

import hashlib
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch
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
    live(world, operation, points)
    return points


def live(world: World, operation: Operation, points: Points) -> None:
    """Run the life of a process whose death is planned, to its end or its death.

    Its random ids depend on the time of its start alone, so that the worlds that two lives leave can be compared.
    """
    began_ms, numbers = world.now_ms, count()

    def drawn(size: int) -> bytes:
        return hashlib.shake_128(f"{began_ms} {next(numbers)}".encode()).digest(size)

    with patch("os.urandom", drawn):
        run_until_killed(points, lambda: _lived(world, operation, points))


async def _lived(world: World, operation: Operation, points: Points) -> None:
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
        self._continued: set[tuple[str, str]] = set()

    @property
    def continued(self) -> int:
        """Return the number of different worlds from which a successor continued."""
        return len(self._continued)

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
        if not self._is_new(world, who):
            return points.is_dead
        try:
            _run(lambda: _go_on(world, self._template, SUCCESSORS[who]))
        except Exception as error:
            raise CrashPointError(
                f"{operation.name}, killed at point {at} ({points.place or 'not killed'}), then a {who}: {error}\n"
                f"alone, with the same --backend and --place: "
                f"python -m tests.tiering.crash_points {operation.name} --at {at} --then {who}"
            ) from error
        return points.is_dead

    def _is_new(self, world: World, who: str) -> bool:
        """Return True unless ``who`` has continued from an equal world after another point.

        A process reads nothing of a dead one but its files, its rows and the time, so it would do the same again. A
        server may still carry out the last batch of a dead process, and there every point counts as new.
        """
        if world.is_remote:
            return True
        rows: dict[str, bytes] = {}

        async def read() -> None:
            rows.update(await world.rows())

        _run(read)
        left = (fingerprint(world, rows), who)
        is_new = left not in self._continued
        self._continued.add(left)
        return is_new


def fingerprint(world: World, rows: Mapping[str, bytes]) -> str:
    """Return a digest of all that survives a process: the time, the rows, and names, links and bytes of files."""
    digest = hashlib.sha256(repr((world.now_ms, sorted(rows.items()))).encode())
    for file in sorted(world.root.rglob("*")):
        if file.parent == world.root and file.name.startswith("metadata.db"):
            continue  # the rows say what is in there
        info = file.lstat()
        digest.update(repr((str(file.relative_to(world.root)), info.st_mode)).encode())
        if file.is_file():
            digest.update(repr((info.st_nlink, info.st_size)).encode() + file.read_bytes())
    return digest.hexdigest()


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
    live(world, operation, points)
    assert points.is_dead == (preparation.dies is not None)
    world.now_ms = points.now_ms() + round(preparation.later_s * 1000)


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work without a kill on the same kind of loop: a loop without threads is much faster."""
    run_until_killed(Points(at=None), work)
