"""GrowthWatch: which files changed, by the kernel."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierd.replication.tail.growth_watch import GrowthWatch


@pytest.fixture
def watch() -> Iterator[GrowthWatch]:
    opened = GrowthWatch()
    yield opened
    opened.close()


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


async def test_growth_and_truncation_are_events_of_the_file(watch: GrowthWatch, tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    numbers = [watch.add(file) for file in files]
    grow(files[0])
    grow(files[1])
    grow(files[0])
    async with asyncio.timeout(30):
        await watch.wait()
    assert watch.take().changed == {numbers[0], numbers[1]}
    assert watch.take().changed == frozenset()
    os.truncate(files[2], 0)
    os.truncate(files[0], 1)
    assert watch.take().changed == {numbers[2], numbers[0]}


async def test_file_that_is_gone_ends_its_watch(watch: GrowthWatch, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    number = watch.add(file)
    assert watch.add(file) == number
    file.unlink()
    assert watch.take().gone == {number}
    watch.remove(number)


async def test_removed_watch_tells_nothing_more(watch: GrowthWatch, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    number = watch.add(file)
    watch.remove(number)
    grow(file)
    assert not watch.take().changed


async def test_lost_events_are_told(watch: GrowthWatch, tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.touch()
        watch.add(file)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    descriptors = [os.open(file, os.O_WRONLY) for file in files]
    for _ in range(limit):  # events of one file in a row are merged
        for descriptor in descriptors:
            os.pwrite(descriptor, b"x", 0)
    for descriptor in descriptors:
        os.close(descriptor)
    assert watch.take().is_incomplete


def test_missing_file_is_an_error_that_names_it(watch: GrowthWatch, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        watch.add(tmp_path / "absent")
