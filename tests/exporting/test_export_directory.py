"""The directory of an export: what it may be, and a crash at every change of the disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.exporting.exported import DAY_MS, JOB, PARTITION, all_offsets, files, layout, rows, staged, write_all
from tierd.errors import AlreadyRunningError, RefusedError
from tierd.exporting import ExportFolder, ExportFormat
from tierd.exporting import export_directory as module
from tierd.exporting.export_directory import ExportDirectory, exported_ends
from tierd.exporting.range_sink import RangeSink
from tierd.files import sync_directory
from tierd.model import TopicIdPartition
from tierd.restore import Journal, read_steps
from tierd.restore import journal as journal_module

RECORDS = 30
LAYOUT = layout(ExportFormat.JSONL, folders=(ExportFolder.DATE,), max_rows=8)


class Killed(BaseException):
    """End of the process at a change of the disk."""


class Executioner:
    """Kills at the ``n``-th change of the disk, before or after it."""

    def __init__(self, n: int, *, is_after: bool) -> None:
        self._left = n
        self._is_after = is_after

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the changes of an export."""
        monkeypatch.setattr(Path, "rename", self._counted(Path.rename))
        monkeypatch.setattr(Path, "unlink", self._counted(Path.unlink))
        monkeypatch.setattr(Journal, "append", self._counted(Journal.append))
        monkeypatch.setattr(module, "sync_directory", self._counted(sync_directory))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._left -= 1
            if not self._left and not self._is_after:
                raise Killed
            done = change(*args, **kwargs)
            if not self._left:
                raise Killed
            return done

        return act


def export_rest(into: Path) -> None:
    """Run the export from where earlier runs have ended; a record a millisecond, and a new day every 10 records."""
    directory = ExportDirectory.open(into, JOB)
    first = directory.next_offsets().get(PARTITION, 0)
    sink = RangeSink(directory, LAYOUT, PARTITION, first)
    try:
        for at in range(first, RECORDS, 3):
            end = min(at + 3, RECORDS)
            write_all(sink, rows(at, [offset // 10 * DAY_MS for offset in range(at, end)]))
        sink.finish(RECORDS)
    finally:  # the kernel closes the files of a process that is killed, and releases its locks
        for file in sink._open.values():
            file.writer.abandon()
        directory.close()


@pytest.mark.parametrize("is_shortened", [False, True], ids=["", "short journal"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_export_that_is_killed_at_any_change_goes_on_without_losing_or_repeating_a_record(
    is_after: bool, is_shortened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_shortened:
        monkeypatch.setattr(module, "_MOST_STEPS", 2)
    for n in range(1, 1_000):
        into = tmp_path / str(n)
        with pytest.MonkeyPatch.context() as watched:
            Executioner(n, is_after=is_after).watch(watched)
            try:
                export_rest(into)
            except Killed:
                pass
            else:
                break
        before = all_offsets(into)
        assert before == list(range(len(before))), f"killed at change {n}"
        export_rest(into)
        assert all_offsets(into) == list(range(RECORDS)), f"killed at change {n}"
        assert staged(into) == [], f"killed at change {n}"
    assert n > 30


def test_export_that_is_killed_again_while_it_mends_loses_nothing(tmp_path: Path) -> None:
    for n in range(10, 30, 3):
        for again in range(1, 5):
            into = tmp_path / f"{n}-{again}"
            for changes in (n, again):
                with pytest.MonkeyPatch.context() as monkeypatch:
                    Executioner(changes, is_after=False).watch(monkeypatch)
                    with pytest.raises(Killed):
                        export_rest(into)
            export_rest(into)
            assert all_offsets(into) == list(range(RECORDS)), f"killed at change {n}, then at {again}"


def test_journal_of_many_steps_keeps_the_last_one_of_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that is repeated for years would else reach the size at which no journal is read any more."""
    monkeypatch.setattr(module, "_MOST_STEPS", 10)
    monkeypatch.setattr(journal_module, "_MAX_BYTES", 5_000)
    other = TopicIdPartition(PARTITION.topic_id, PARTITION.topic, PARTITION.partition + 1)
    lengths = []
    for run in range(5):
        directory = ExportDirectory.open(tmp_path, JOB)
        directory.commit(other, run, run + 1, [])
        for at in range(20):
            directory.commit(PARTITION, 100 * run + at, 100 * run + at + 1, [], epoch=run)
            lengths.append(len(read_steps(tmp_path / ".tierd-export/journal")))
        directory.close()
    assert max(lengths) < 10
    assert exported_ends(tmp_path, JOB) == {PARTITION: (420, 4), other: (5, None)}
    assert [path.name for path in (tmp_path / ".tierd-export").iterdir()] == ["journal"]


def test_directory_with_other_content_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for refused in (lambda: ExportDirectory.open(tmp_path, JOB), lambda: exported_ends(tmp_path, JOB)):
        with pytest.raises(RefusedError, match=r"is not empty: it has notes\.txt"):
            refused()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_directory_of_another_export_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    export_rest(tmp_path)
    before = files(tmp_path)
    other = {**JOB, "format": "arrow"}
    for refused in (lambda: ExportDirectory.open(tmp_path, other), lambda: exported_ends(tmp_path, other)):
        with pytest.raises(RefusedError, match="has an export with other arguments"):
            refused()
    assert files(tmp_path) == before
    assert {at: end.next_offset for at, end in exported_ends(tmp_path, JOB).items()} == {PARTITION: RECORDS}


def test_directory_that_another_process_exports_into_is_refused(tmp_path: Path) -> None:
    first = ExportDirectory.open(tmp_path, JOB)
    with pytest.raises(AlreadyRunningError, match="another process works on this export"):
        ExportDirectory.open(tmp_path, JOB)
    first.close()
    ExportDirectory.open(tmp_path, JOB).close()


def test_files_that_were_moved_away_are_not_missed(tmp_path: Path) -> None:
    export_rest(tmp_path)
    for name in files(tmp_path):
        (tmp_path / name).unlink()
    export_rest(tmp_path)
    assert all_offsets(tmp_path) == []


def test_plan_of_an_export_writes_nothing(tmp_path: Path) -> None:
    assert exported_ends(tmp_path / "new", JOB) == {}
    assert not (tmp_path / "new").exists()
