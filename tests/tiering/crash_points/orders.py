"""Campaign of one operation, run and printed by a process of its own."""

import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from tests.tiering.crash_points.campaign import Campaign, CrashPointError, Victim, kill_here, template_of
from tests.tiering.crash_points.operations import OPERATIONS
from tests.tiering.crash_points.victim import ForkedVictims
from tests.tiering.crash_points.world import MEMORY, RAM


@dataclass(frozen=True, slots=True)
class Order:
    """Work order of one operation."""

    operation: str
    address: str
    successors: Sequence[str]
    alternating: bool = False
    place: str = ""
    at: int | None = None


def carry_out(order: Order) -> bool:
    """Kill, count and print; return True if every invariant held."""
    if order.at is None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=RAM)))
        victim: Victim = kill_here
        if order.address != MEMORY:
            victim = stack.enter_context(ForkedVictims()).kill
        template = template_of(OPERATIONS[order.operation], root / "template")
        campaign = Campaign(template, root, address=order.address, victim=partial(victim, place=order.place))
        try:
            if order.at is not None:
                for who in order.successors:
                    campaign.kill_at(order.at, who)
                return True
            points = campaign.run(order.successors, is_alternating=order.alternating)
        except CrashPointError as error:
            print(error, file=sys.stderr, flush=True)
            return False
    print(
        f"{order.operation}: {points} points, {campaign.continued} worlds, {time.monotonic() - began_s:.1f} s",
        flush=True,
    )
    return True
