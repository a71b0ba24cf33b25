"""The durable progress of a restore: resumed state, and an offset map that never has more than the journal counts."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tierd.control import ProducerIdentity
from tierd.errors import RefusedError, StateDirError
from tierd.model import TopicPartition
from tierd.restore.journal import Journal, JournalStep
from tierd.restore.live_cluster.offset_map import MappedRange, read_offset_map
from tierd.restore.live_cluster.restore_progress import OFFSET_MAP_FILE, PartitionProgress, RestoreProgress

NAME, TARGET = TopicPartition("orders", 0), TopicPartition("restored", 0)
BEGUN = PartitionProgress(
    name=NAME,
    end_offset=100,
    producer=ProducerIdentity(7, 0),
    max_batch_bytes=1000,
    next_offset=5,
    sequence=0,
    target_offset=40,
    begun_ms=1,
    at_ms=1,
)
SENT = replace(BEGUN, next_offset=15, sequence=10, target_offset=48, at_ms=2, has_sent=True)


def opened(directory: Path, job: str = "one") -> RestoreProgress:
    return RestoreProgress.open(directory, {"job": job}, source_cluster="old", target_cluster="new")


async def test_next_run_has_the_state_of_the_last_step(tmp_path: Path) -> None:
    with opened(tmp_path / "new") as progress:
        await progress.create("restored")
        await progress.begin(BEGUN)
        await progress.sent(SENT, TARGET, [MappedRange(5, 10, 40)])

    with opened(tmp_path / "new") as progress:
        assert progress.partition(NAME) == SENT
        assert progress.may_have_created("restored")
        assert not progress.is_configured("restored")
        await progress.done(NAME)
        await progress.configured("restored")

    with opened(tmp_path / "new") as progress:
        assert progress.partition(NAME) == replace(SENT, is_done=True)
        assert progress.is_configured("restored")
    found = read_offset_map(tmp_path / "new" / OFFSET_MAP_FILE, target_cluster="new")
    assert found[NAME].ranges == [MappedRange(5, 10, 40)]


async def test_lines_of_the_map_that_no_step_counts_are_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as progress:
        await progress.begin(BEGUN)
        await progress.sent(SENT, TARGET, [MappedRange(5, 10, 40)])
    whole = (tmp_path / OFFSET_MAP_FILE).read_bytes()
    with (tmp_path / OFFSET_MAP_FILE).open("ab") as file:
        file.write(b'{"source":"orders-0","target":"restored-0","start":15,"cou')

    with opened(tmp_path) as progress:
        await progress.sent(replace(SENT, next_offset=16, sequence=11), TARGET, [MappedRange(15, 1, 50)])

    after = (tmp_path / OFFSET_MAP_FILE).read_bytes()
    assert after.startswith(whole)
    assert after.count(b"\n") == whole.count(b"\n") + 1


async def test_lines_before_the_first_step_are_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as progress:
        await progress.begin(BEGUN)
    header = (tmp_path / OFFSET_MAP_FILE).read_bytes()
    (tmp_path / OFFSET_MAP_FILE).write_bytes(header + b"half")

    with opened(tmp_path):
        assert (tmp_path / OFFSET_MAP_FILE).read_bytes() == header


async def test_map_that_lost_counted_lines_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path) as progress:
        await progress.begin(BEGUN)
        await progress.sent(SENT, TARGET, [MappedRange(5, 10, 40)])
    (tmp_path / OFFSET_MAP_FILE).write_bytes(b"")

    with pytest.raises(StateDirError, match="shorter than the journal says"):
        opened(tmp_path)


def test_directory_of_another_restore_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, "one").close()
    with pytest.raises(RefusedError, match="another restore"):
        opened(tmp_path, "two")


def test_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirError, match="Not a directory"):
        opened(tmp_path / "file" / "journal")


async def test_step_that_is_cancelled_is_in_the_map_and_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as progress:
        await progress.begin(BEGUN)
        fdatasync = os.fdatasync
        noting: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()

        def cancel_meanwhile(fd: int) -> None:
            assert noting is not None
            loop.call_soon_threadsafe(noting.cancel)
            fdatasync(fd)

        monkeypatch.setattr(os, "fdatasync", cancel_meanwhile)
        noting = asyncio.create_task(progress.sent(SENT, TARGET, [MappedRange(5, 10, 40)]))
        with pytest.raises(asyncio.CancelledError):
            await noting

        assert progress.partition(NAME) == SENT
    with opened(tmp_path) as progress:
        assert progress.partition(NAME) == SENT
    found = read_offset_map(tmp_path / OFFSET_MAP_FILE, target_cluster="new")
    assert found[NAME].ranges == [MappedRange(5, 10, 40)]


async def test_lines_whose_step_cannot_be_written_are_not_counted_by_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(BEGUN, name=TopicPartition("orders", 1))
    with opened(tmp_path) as progress:
        await progress.begin(BEGUN)
        await progress.begin(other)
        append = Journal.append
        failures = iter([StateDirError("no space left on device", remedy="make room")])

        def full_once(journal: Journal, step: JournalStep) -> None:
            if failure := next(failures, None):
                raise failure
            append(journal, step)

        monkeypatch.setattr(Journal, "append", full_once)
        with pytest.raises(StateDirError, match="no space"):
            await progress.sent(SENT, TARGET, [MappedRange(5, 10, 40), MappedRange(17, 1, 50)])
        assert progress.partition(NAME) == BEGUN
        sent = replace(SENT, name=other.name)
        await progress.sent(sent, TopicPartition("restored", 1), [MappedRange(5, 10, 40)])

    found = read_offset_map(tmp_path / OFFSET_MAP_FILE, target_cluster="new")
    assert list(found) == [other.name]
    with opened(tmp_path) as progress:
        assert progress.partition(NAME) == BEGUN
        assert progress.partition(other.name) == sent


async def test_topic_that_someone_else_has_created_is_not_the_restores(tmp_path: Path) -> None:
    with opened(tmp_path) as progress:
        await progress.create("restored")
        await progress.not_created("restored")
        assert not progress.may_have_created("restored")

    with opened(tmp_path) as progress:
        assert not progress.may_have_created("restored")
