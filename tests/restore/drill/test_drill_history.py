"""The history of drills: durable line by line, bounded, and never without the proof of a partition."""

from pathlib import Path

import pytest

from tests.restore.drill.drills import drilled, named
from tierd.errors import StateDirError
from tierd.restore.drill.drill_history import HISTORY_NAME, DrillHistory
from tierd.restore.drill.drilled_partition import DrillOutcome


def test_history_without_a_file_is_empty(tmp_path: Path) -> None:
    assert DrillHistory(tmp_path).read() == []
    assert DrillHistory(tmp_path).version() is None


def test_drills_are_read_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    drills = [drilled(0, 1), drilled(1, 2, outcome=DrillOutcome.FAILED, problem="lost")]
    for drill in drills:
        DrillHistory(tmp_path).append(drill)
    assert DrillHistory(tmp_path).read() == drills


def test_version_changes_with_each_line(tmp_path: Path) -> None:
    history, versions = DrillHistory(tmp_path), set()
    for at in range(3):
        history.append(drilled(0, at))
        versions.add(history.version())
    assert len(versions) == 3


@pytest.mark.parametrize("torn", [b'{"run_id":"r', b"\x00\xff", b"7", b'{"run_id":"r","partition":"no name"}'])
def test_line_that_was_torn_spoils_no_other(tmp_path: Path, torn: bytes) -> None:
    history = DrillHistory(tmp_path)
    history.append(drilled(0, 1))
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(torn)
    history.append(drilled(1, 2))
    assert history.read() == [drilled(0, 1), drilled(1, 2)]


def test_thinning_keeps_the_newest_lines_and_the_last_drill_and_proof_of_each_partition(tmp_path: Path) -> None:
    history = DrillHistory(tmp_path, lines_kept=2)
    failed = DrillOutcome.FAILED
    drills = [
        drilled(0, 1),
        drilled(0, 2),  # the proof of 0
        drilled(0, 3, outcome=failed),
        drilled(0, 4, outcome=failed),  # the last drill of 0
        drilled(1, 5),  # the tier has 1 no more
        drilled(2, 6),
        drilled(2, 7),
    ]
    for drill in drills:
        history.append(drill)
    history.thin({named(0), named(2)})
    assert history.read() == [drills[1], drills[3], drills[5], drills[6]]
    assert [path.name for path in tmp_path.iterdir()] == [HISTORY_NAME]


def test_short_history_is_left_as_it_is(tmp_path: Path) -> None:
    history = DrillHistory(tmp_path)
    history.append(drilled(0, 1))
    version = history.version()
    history.thin(set())
    assert history.version() == version


def test_history_that_cannot_be_used_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / HISTORY_NAME).mkdir()
    for use in (DrillHistory(tmp_path).read, lambda: DrillHistory(tmp_path).append(drilled(0, 1))):
        with pytest.raises(StateDirError) as caught:
            use()
        assert caught.value.remedy
