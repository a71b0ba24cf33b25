"""The journal of a restore: steps are durable, a torn last line is not done, another job is refused."""

import fcntl
from pathlib import Path

import pytest

from tierd.errors import AlreadyRunningError, RefusedError, StateDirError
from tierd.restore.journal import Journal, read_steps

JOB = {"partition": "orders-0", "into": "/logs"}


def test_reopened_journal_has_the_steps_of_the_run_before(tmp_path: Path) -> None:
    """A killed run resumes after its last step."""
    path = tmp_path / "journal"
    with Journal.open(path, JOB) as journal:
        assert journal.steps == []
        journal.append({"step": "planned"})
        journal.append({"step": "fetched", "part": 0})
    with Journal.open(path, JOB) as journal:
        assert journal.steps == [{"step": "planned"}, {"step": "fetched", "part": 0}]


@pytest.mark.parametrize("cut", range(1, 20))
def test_half_a_last_line_counts_as_not_done(tmp_path: Path, cut: int) -> None:
    """A crash inside a write leaves any part of the line; the next step follows the last whole line."""
    path = tmp_path / "journal"
    with Journal.open(path, JOB) as journal:
        journal.append({"step": "planned"})
        journal.append({"step": "fetched"})
    data = path.read_bytes()
    path.write_bytes(data[: -min(cut, len('{"step":"fetched"}\n'))])
    with Journal.open(path, JOB) as journal:
        assert journal.steps == [{"step": "planned"}]
        journal.append({"step": "staged"})
    with Journal.open(path, JOB) as journal:
        assert journal.steps == [{"step": "planned"}, {"step": "staged"}]


def test_journal_of_another_job_is_refused(tmp_path: Path) -> None:
    """Other arguments must not continue with steps that are not theirs."""
    path = tmp_path / "journal"
    Journal.open(path, JOB).close()
    with pytest.raises(RefusedError, match="another restore"):
        Journal.open(path, {**JOB, "into": "/other"})


def test_second_process_is_refused(tmp_path: Path) -> None:
    """Two runs of one job would write the same files."""
    path = tmp_path / "journal"
    with Journal.open(path, JOB), pytest.raises(AlreadyRunningError, match="another process"):
        Journal.open(path, JOB)


@pytest.mark.parametrize("damage", [b"no json\n", b"[1]\n"])
def test_damage_before_the_last_line_is_an_error(tmp_path: Path, damage: bytes) -> None:
    """A line that was durable once is never skipped."""
    path = tmp_path / "journal"
    Journal.open(path, JOB).close()
    path.write_bytes(damage + path.read_bytes())
    with pytest.raises(StateDirError, match="damaged"):
        Journal.open(path, JOB)


def test_journal_that_was_written_anew_has_the_new_steps_and_stays_locked(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal.open(path, JOB) as journal:
        for part in range(5):
            journal.append({"step": "fetched", "part": part})
        journal.replace_steps(journal.steps[-2:])
        journal.append({"step": "staged"})
        with pytest.raises(AlreadyRunningError, match="another process"):
            Journal.open(path, JOB)
        assert read_steps(path) == journal.steps
    with Journal.open(path, JOB) as journal:
        assert [step.get("part") for step in journal.steps] == [3, 4, None]
    assert [each.name for each in tmp_path.iterdir()] == ["journal"]


def test_process_that_opened_the_journal_before_it_was_written_anew_does_not_get_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for no lock, but may open the file, lose the processor, and lock what is not the journal any more."""
    path, running = tmp_path / "journal", Journal.open(tmp_path / "journal", JOB)
    lock = fcntl.flock

    def late(fd: int, operation: int) -> None:
        monkeypatch.undo()
        running.replace_steps([])
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(AlreadyRunningError, match="another process"):
        Journal.open(path, JOB)
    running.append({"step": "planned"})
    running.close()
    assert read_steps(path) == [{"step": "planned"}]
