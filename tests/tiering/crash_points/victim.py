"""Real processes that die by ``os._exit`` at a point. One parent has imported all modules and forks each of them.

Run as a script, this module is that parent; imported, it is the client of a campaign. In a child, calls of the
file system count too: a process may die between any two of them.
"""

import asyncio
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import structlog

from tests.fakes.forking_parent import ForkingParent, serve_lines
from tests.tiering.crash_points.campaign import live
from tests.tiering.crash_points.operations import OPERATIONS, Operation
from tests.tiering.crash_points.points import KILLED_EXIT_CODE, Points
from tests.tiering.crash_points.world import World
from tierd.tiering import TopicPolicy

_WRITES = frozenset({"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"})


class ForkedVictims(ForkingParent):
    """Victims as processes of their own, one at a time; a context manager."""

    def __init__(self) -> None:
        super().__init__("tests.tiering.crash_points.victim")

    def kill(self, world: World, operation: Operation, at: int | None, *, place: str) -> Points:
        """Run the operation and kill it at a point; return the counted points and the end of the process."""
        order = {
            "root": str(world.root),
            "address": world.address,
            "retention_ms": world.policy.retention_ms,
            "now_ms": world.now_ms,
            "operation": operation.name,
            "at": at,
            "place": place,
        }
        self.say(json.dumps(order))
        said, ended = self.hear().split(maxsplit=2), self.hear()
        assert ended.strip() in {"0", str(KILLED_EXIT_CODE)}, f"{operation.name} at {at}: {said} {ended}"
        points = Points(at=at)
        points.is_dead = int(ended) == KILLED_EXIT_CODE
        now_ms, points.count, points.place = int(said[0]), int(said[1]), said[2].strip()
        points.now_ms = lambda: now_ms
        return points


def _live(line: str) -> int:
    order = json.loads(line)
    policy = TopicPolicy(retention_ms=order["retention_ms"])
    world = World(Path(order["root"]), order["address"], policy, order["now_ms"])
    points = Points(at=order["at"], place=order["place"], is_child=True, network_kv=world.is_remote)
    sys.addaudithook(_file_system_points(points, order["root"]))
    try:
        live(world, OPERATIONS[order["operation"]], points)
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        traceback.print_exc()
        print("0 0 failed", flush=True)
        return 1
    print(points.now_ms(), points.count, "lived", flush=True)
    return 0


def _file_system_points(points: Points, root: str) -> "Callable[[str, tuple[object, ...]], None]":
    """Count a point before every change of a directory, and before a file is opened for writing, by an audit hook.

    SQLite changes its files below the interpreter: its own commits make these changes safe.
    """

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        is_write = event in _WRITES or (
            event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        )
        if is_write and isinstance(arguments[0], str | Path) and str(arguments[0]).startswith(root):
            points.passes(f"before {event} {Path(str(arguments[0])).name}")

    return hook


if __name__ == "__main__":
    asyncio.set_event_loop(None)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    serve_lines(_live)
