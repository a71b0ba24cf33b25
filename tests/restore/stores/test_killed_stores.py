"""Stores of a process that is killed at any moment: data and offset agree (changelog-restore 3.9)."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fakes.forking_parent import ForkingParent
from tests.restore.stores.killed_store import expected_content
from tests.restore.stores.store_fixtures import ON_DISK, content

ROUNDS = 6


@pytest.fixture(scope="module")
def parent() -> Iterator[ForkingParent]:
    with ForkingParent("tests.restore.stores.killed_store") as started:
        yield started


def kill_after(parent: ForkingParent, command: str, *, lines: int) -> None:
    """Run a child and kill it once it has printed so many lines."""
    parent.say(command)
    process_id = int(parent.hear())
    for _ in range(lines):
        line = parent.hear()
        assert line.startswith("applied"), f"the child printed {line!r}"
    os.kill(process_id, signal.SIGKILL)
    while (line := parent.hear()) != f"{-signal.SIGKILL}\n":
        assert line, "the parent has ended"


async def opened_again(kind: str, directory: Path) -> int | None:
    """Open the store, compare its content with its offset, and return the offset."""
    store = ON_DISK[kind]("counts")
    await store.open(directory)
    offset = await store.stored_offset()
    await store.close(clean=True)
    assert content(store, directory) == expected_content(offset)
    return offset


@pytest.mark.spec("changelog-restore 56")
@pytest.mark.parametrize("kind", ON_DISK)
def test_killed_store_has_the_data_of_its_offset_and_goes_on(parent: ForkingParent, tmp_path: Path, kind: str) -> None:
    random = Random(56)
    reached = -1
    for _ in range(ROUNDS):
        kill_after(parent, f"fill {kind} {tmp_path}", lines=random.randrange(1, 100))
        offset = asyncio.run(opened_again(kind, tmp_path))
        offset = -1 if offset is None else offset
        assert offset >= reached  # the store before was closed cleanly
        reached = offset
    assert reached > 0


@pytest.mark.spec("changelog-restore 62")
@pytest.mark.parametrize("kind", ON_DISK)
def test_store_that_was_killed_between_wipes_has_the_data_of_its_offset(
    parent: ForkingParent, tmp_path: Path, kind: str
) -> None:
    random = Random(62)
    for _ in range(ROUNDS):
        kill_after(parent, f"wipe {kind} {tmp_path}", lines=random.randrange(0, 4))
        asyncio.run(opened_again(kind, tmp_path))
