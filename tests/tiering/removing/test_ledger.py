"""Ledger of deletions: durable before the step, bounded, and readable after a crash."""

import asyncio
import json
import os
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiering.removing.rows import NOW_MS, row
from tierd.errors import StateDirError
from tierd.model import TopicPartition
from tierd.tiering.removing.ledger import LEDGER_NAME, DeletionLedger, LedgerEntry, LedgerStep, read_ledger, read_newest


def entry(start: int = 0, *, time_ms: int = NOW_MS, detail: str = "") -> LedgerEntry:
    return LedgerEntry.of(
        row(start, start + 99),
        LedgerStep.DELETED,
        reason="retention_time",
        detail=detail,
        time_ms=time_ms,
        broker_id=1,
    )


async def test_line_is_in_the_file_when_record_returns(tmp_path: Path) -> None:
    noted = entry()
    await DeletionLedger(tmp_path).record(noted)
    assert json.loads((tmp_path / LEDGER_NAME).read_text()) == asdict(noted)
    assert (tmp_path / LEDGER_NAME).stat().st_mode & 0o777 == 0o600
    assert list(read_ledger(tmp_path)) == [noted]


async def test_concurrent_lines_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    ledger = DeletionLedger(tmp_path)
    await ledger.record(entry())
    synced.clear()
    await asyncio.gather(*(ledger.record(entry(start)) for start in range(100)))
    assert len(synced) <= 2
    assert len(list(read_ledger(tmp_path))) == 101


async def test_old_files_are_removed_and_the_newest_lines_are_kept(tmp_path: Path) -> None:
    ledger = DeletionLedger(tmp_path, max_file_bytes=1000, old_files=2)
    for start in range(40):
        await ledger.record(entry(start))
    files = sorted(tmp_path.iterdir())
    assert len(files) <= 3
    assert all(file.stat().st_size < 2000 for file in files)
    kept = [noted.start_offset for noted in read_ledger(tmp_path)]
    assert kept == list(range(40))[-len(kept) :], "oldest first, without a gap"


async def test_copy_that_a_person_made_beside_the_ledger_is_not_read(tmp_path: Path) -> None:
    noted = entry()
    await DeletionLedger(tmp_path).record(noted)
    for suffix in (".bak", ".1.gz", ".²"):
        (tmp_path / f"{LEDGER_NAME}{suffix}").write_bytes((tmp_path / LEDGER_NAME).read_bytes())
    assert list(read_ledger(tmp_path)) == [noted]


async def test_torn_line_does_not_affect_other_lines(tmp_path: Path) -> None:
    await DeletionLedger(tmp_path).record(entry(1))
    with (tmp_path / LEDGER_NAME).open("a") as file:
        file.write('{"time_ms":1700')
    await DeletionLedger(tmp_path).record(entry(2))
    assert [noted.start_offset for noted in read_ledger(tmp_path)] == [1, 2]


async def test_line_of_64_mebibytes_is_skipped_within_bounded_memory(tmp_path: Path) -> None:
    ledger, first, last = DeletionLedger(tmp_path), entry(), entry(100)
    await ledger.record(first)
    os.truncate(tmp_path / LEDGER_NAME, 64 << 20)
    with (tmp_path / LEDGER_NAME).open("ab") as file:
        file.write(b"\n")
    await ledger.record(last)
    tracemalloc.start()
    try:
        assert list(read_ledger(tmp_path)) == [first, last]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


async def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = DeletionLedger(tmp_path)
    await ledger.record(entry(1))
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:10]))
    with pytest.raises(StateDirError, match="No space left"):
        await ledger.record(entry(2))
    monkeypatch.undo()
    await ledger.record(entry(3))
    assert [noted.start_offset for noted in read_ledger(tmp_path)] == [1, 3]
    assert len((tmp_path / LEDGER_NAME).read_text().splitlines()) == 2


async def test_cancelled_record_does_not_cancel_a_concurrent_one(tmp_path: Path) -> None:
    ledger = DeletionLedger(tmp_path)
    cancelled = asyncio.create_task(ledger.record(entry(1)))
    other = asyncio.create_task(ledger.record(entry(2)))
    await asyncio.sleep(0)
    cancelled.cancel()
    await other
    assert cancelled.cancelled()
    assert 2 in [noted.start_offset for noted in read_ledger(tmp_path)]


async def test_lines_are_chosen_by_partition_and_time(tmp_path: Path) -> None:
    ledger = DeletionLedger(tmp_path)
    await ledger.record(entry(1, time_ms=10))
    await ledger.record(entry(2, time_ms=20))
    assert [e.start_offset for e in read_ledger(tmp_path, TopicPartition("orders", 0), since_ms=15)] == [2]
    assert list(read_ledger(tmp_path, TopicPartition("payments", 0))) == []


def test_missing_ledger_reads_as_empty(tmp_path: Path) -> None:
    assert list(read_ledger(tmp_path)) == []


def test_fields_of_a_later_tierd_are_no_damage(tmp_path: Path) -> None:
    (tmp_path / LEDGER_NAME).write_text(json.dumps({**asdict(entry(7)), "colour": "blue"}) + "\n")
    assert [noted.start_offset for noted in read_ledger(tmp_path)] == [7]


def test_a_ledger_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / LEDGER_NAME).mkdir()
    with pytest.raises(StateDirError):
        list(read_ledger(tmp_path))


@given(st.binary(max_size=200))
def test_reader_accepts_any_content_without_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    (directory / LEDGER_NAME).write_bytes(content)
    assert list(read_ledger(directory)) == []


async def test_newest_lines_come_first_and_from_as_many_files_as_they_need(tmp_path: Path) -> None:
    ledger = DeletionLedger(tmp_path, max_file_bytes=1000, old_files=2)
    for start in range(40):
        await ledger.record(entry(start))
    every = [noted.start_offset for noted in read_ledger(tmp_path)]
    assert [noted.start_offset for noted in read_newest(tmp_path, limit=5)] == every[:-6:-1]
    assert [noted.start_offset for noted in read_newest(tmp_path, limit=1000)] == every[::-1]
    assert read_newest(tmp_path, TopicPartition("other", 0), limit=5) == []
    assert read_newest(tmp_path / "nothing", limit=5) == []


async def test_newest_lines_are_looked_for_within_the_bound_and_no_line_is_cut(tmp_path: Path) -> None:
    ledger = DeletionLedger(tmp_path)
    for start in range(40):
        await ledger.record(entry(start))
    size = (tmp_path / LEDGER_NAME).stat().st_size
    for max_bytes in (1, size // 3, size - 1, size):
        found = [noted.start_offset for noted in read_newest(tmp_path, limit=1000, max_bytes=max_bytes)]
        assert found == list(range(40))[::-1][: len(found)]
        assert max_bytes - size // 40 * 2 <= len(found) * (size // 40) <= max_bytes
