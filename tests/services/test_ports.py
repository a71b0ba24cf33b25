"""Ports of test processes that run side by side."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ASKING: Final = """
from tests.services import ports

ports._left = iter(range(20_000, 21_000))
print(ports.free_port(), ports.free_port(1), flush=True)
input()
"""


@contextmanager
def asking() -> Iterator[tuple[int, int]]:
    """Run a process that takes two ports of a range, the second with the one above it; it ends behind the block."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first, second = map(int, process.stdout.readline().split())
        yield first, second
        process.communicate("\n")


def test_process_gets_no_port_of_another_one_that_lives() -> None:
    with asking() as (first, second):
        assert first < second
        with asking() as others:
            assert min(others) > second + 1, "the port above the second is its own too"
    with asking() as again:
        assert again == (first, second), "the ports of processes that have ended are free"
