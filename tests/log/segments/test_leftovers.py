import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.simulated_disk import PowerLostError, SimulatedDisk
from tests.log.batches import plain
from tierd.log.files.disk import OsDisk, read_file
from tierd.log.files.partition_scan import file_name
from tierd.log.segments.leftovers import clear_leftovers, offset_of, plan_leftovers, replaced_by

KINDS = (".log", ".index", ".timeindex", ".txnindex")
METADATA_SNAPSHOT = "00000000000000000007-0000000001.checkpoint.deleted"
SUFFIXES = ("", ".cleaned", ".swap", ".deleted")

segment_names = st.builds(
    lambda base, kind, suffix: file_name(base, kind + suffix),
    st.integers(0, 5),
    st.sampled_from(KINDS),
    st.sampled_from(SUFFIXES),
)
other_names = st.sampled_from(
    [
        "notes.txt",
        "leader-epoch-checkpoint",
        "x.swap",
        "x.cleaned",
        METADATA_SNAPSHOT,
        "partition.metadata",
        ".swap",
    ]
)


@pytest.mark.spec("log-format DIR-12")
@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000023423423.log", 23_423_423),
        ("00000000000023423423.timeindex.swap", 23_423_423),
        ("-1.log", -1),
        ("00000000000023423423", None),
        ("x.log", None),
        (".log", None),
        ("99999999999999999999.log", None),
        ("٣.log", None),
        ("1_0.log", None),
    ],
)
def test_offset_of_a_file_name_is_parsed_before_the_first_dot(name: str, offset: int | None) -> None:
    assert offset_of(name) == offset


@given(st.frozensets(segment_names | other_names))
def test_plan_decides_each_temporary_file_and_no_other(names: frozenset[str]) -> None:
    plan = plan_leftovers(names)
    decided = [*plan.unlink_first, *plan.unlink_then, *plan.swaps]
    assert len(set(decided)) == len(decided)
    temporaries = {name for name in names if offset_of(name) is not None and name.endswith(SUFFIXES[1:])}
    assert set(decided) == temporaries - {METADATA_SNAPSHOT}


@given(st.frozensets(segment_names))
def test_swap_file_is_completed_only_below_every_cleaned_file(names: frozenset[str]) -> None:
    plan = plan_leftovers(names)
    first_cleaned = min((offset_of(name) or 0 for name in names if name.endswith(".cleaned")), default=1 << 62)
    swaps = {name for name in names if name.endswith(".swap")}
    assert set(plan.swaps) == {name for name in swaps if (offset_of(name) or 0) < first_cleaned}
    assert swaps - set(plan.swaps) <= set(plan.unlink_first)  # before the .cleaned files that prove the swap
    assert {name for name in names if name.endswith(".cleaned")} == set(plan.unlink_then)


def test_completed_replacement_removes_segments_and_snapshots_within_its_bounds() -> None:
    names = [
        file_name(0, ".log"),
        file_name(5, ".log"),
        file_name(5, ".snapshot"),
        file_name(5, ".log.swap"),
        file_name(9, ".timeindex"),
        file_name(10, ".log"),
        "notes.txt",
    ]
    assert replaced_by(names, first=5, end=10) == [names[1], names[2], names[4]]


def test_directory_without_leftovers_is_not_changed(tmp_path: Path) -> None:
    for name in (file_name(0, ".log"), "notes.txt", "x.swap"):
        (tmp_path / name).write_text(name)
    (tmp_path / file_name(0, ".log.deleted")).mkdir()
    clear_leftovers(OsDisk(), tmp_path)
    assert len([*tmp_path.iterdir()]) == 4


DIRECTORY = Path("/orders-0")
OLD = [plain(0), plain(1), plain(2), plain(3)]
NEW = [plain(1), plain(3)]


def interrupted(first: str, second: str) -> SimulatedDisk:
    """Write segments 0 and 2 whose replacement by halves was interrupted; every file is durable."""
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    contents = {
        file_name(0, ".log"): OLD[:2],
        file_name(2, ".log"): OLD[2:],
        file_name(2, ".snapshot"): [b"old"],
        file_name(0, ".log" + first): NEW[:1],
        file_name(2, ".log" + second): NEW[1:],
    }
    for name, content in contents.items():
        file = disk.open(DIRECTORY / name, create=True)
        file.write(0, content)
        file.sync()
        file.close()
    disk.sync_directory(DIRECTORY)
    disk.sync_directory(DIRECTORY.parent)
    return disk


@pytest.mark.spec("log-format LOAD-16")
@pytest.mark.spec("log-format LOAD-17")
@pytest.mark.parametrize(
    ("first", "second", "expected"), [(".cleaned", ".swap", OLD), (".swap", ".swap", NEW)], ids=["undone", "finished"]
)
def test_repeated_loss_of_power_leaves_the_old_or_the_new_segments_whole(
    first: str, second: str, expected: list[bytes]
) -> None:
    for step in range(1, 100):
        for seed in range(5):
            disk = interrupted(first, second)
            disk.power_fails_at = disk.moment + step
            try:
                clear_leftovers(disk, DIRECTORY)
                is_done = True
            except PowerLostError:
                is_done = False
                disk.crash(random.Random(seed))
            clear_leftovers(disk, DIRECTORY)
            names = [name for name in disk.list_names(DIRECTORY) if name.endswith(".log")]
            assert b"".join(read_file(disk, DIRECTORY / name) for name in names) == b"".join(expected)
            assert not [name for name in disk.list_names(DIRECTORY) if name.endswith((".swap", ".cleaned"))]
        if is_done:
            return
    raise AssertionError("it does not end")
