from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import structlog

from tests.fakes.simulated_disk import Fault, PowerLostError, SimulatedDisk
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import CheckpointFault, CheckpointFileError, IllegalRestoreError
from tierd.restore.changelog.checkpoints.checkpoint_file import OFFSET_UNKNOWN, CheckpointFile, OffsetSemantics

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
THREE = {T0: 0, T1: 1, T2: 2}


@pytest.fixture
def file(tmp_path: Path) -> CheckpointFile:
    return CheckpointFile(tmp_path / ".checkpoint")


def fault_of(file: CheckpointFile, content: str | bytes) -> CheckpointFault:
    """Return the fault that a read of ``content`` reports."""
    file.path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointFileError) as caught:
        file.read()
    return caught.value.fault


@pytest.mark.spec("changelog-restore 1")
def test_written_offsets_are_read_and_deleted_and_written_again(file: CheckpointFile) -> None:
    file.write(THREE)
    assert file.read() == THREE
    assert file.path.read_text() == "0\n3\nt 0 0\nt 1 1\nt 2 2\n"
    file.delete()
    assert not file.path.exists()
    file.write({T1: 9})
    assert file.read() == {T1: 9}


@pytest.mark.spec("changelog-restore 2")
def test_missing_file_reads_as_empty_and_deletes_without_error(file: CheckpointFile) -> None:
    assert file.read() == {}
    file.delete()


@pytest.mark.spec("changelog-restore 3")
def test_write_of_no_offsets_deletes_the_file(file: CheckpointFile) -> None:
    file.write(THREE)
    file.write({})
    assert not file.path.exists()


@pytest.mark.spec("changelog-restore 4")
@pytest.mark.parametrize("offset", [-1, -2, -3, -5])
def test_negative_offset_in_a_file_is_skipped_with_a_warning(file: CheckpointFile, offset: int) -> None:
    file.path.write_text(f"0\n2\nt 0 {offset}\nt 1 7\n")
    with structlog.testing.capture_logs() as logs:
        assert file.read() == {T1: 7}
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("checkpoint_entry_skipped", "warning")]


@pytest.mark.spec("changelog-restore 5")
@pytest.mark.parametrize("bad", [{T0: 5, T1: -1}, {T0: 5, T1: -3}, {TopicPartition("a b", 0): 1}])
def test_write_of_an_illegal_entry_leaves_the_old_file(file: CheckpointFile, bad: dict[TopicPartition, int]) -> None:
    file.write(THREE)
    with pytest.raises(IllegalRestoreError):
        file.write(bad)
    assert file.read() == THREE
    assert [path.name for path in file.path.parent.iterdir()] == [".checkpoint"]


@pytest.mark.spec("changelog-restore 6")
def test_unknown_offset_survives_write_and_read(file: CheckpointFile) -> None:
    file.write({T0: OFFSET_UNKNOWN})
    assert file.read() == {T0: -4}


@pytest.mark.spec("changelog-restore 7")
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("1\n0\n", CheckpointFault.VERSION),
        ("", CheckpointFault.ENDS_EARLY),
        ("0\n", CheckpointFault.ENDS_EARLY),
        ("0\n1\nt 0\n", CheckpointFault.FORMAT),
        ("0\n1\nt 0 1 2\n", CheckpointFault.FORMAT),
        ("0\n1\n t 0 1\n", CheckpointFault.FORMAT),
        ("0\n1\n\nt 0 1\n", CheckpointFault.FORMAT),
        ("0\n1\nt 0 1\n\n", CheckpointFault.FORMAT),
        ("0\n1\nt zero 1\n", CheckpointFault.NUMBER),
        ("0\n1\nt 0 1_0\n", CheckpointFault.NUMBER),
        ("0\n1\nt 0 9223372036854775808\n", CheckpointFault.NUMBER),
        ("zero\n0\n", CheckpointFault.NUMBER),
        (b"0\n1\n\xff 0 1\n", CheckpointFault.FORMAT),
    ],
)
def test_content_that_breaks_the_format_is_refused(
    file: CheckpointFile, content: str | bytes, fault: CheckpointFault
) -> None:
    assert fault_of(file, content) is fault


@pytest.mark.spec("changelog-restore 8")
@pytest.mark.parametrize("entries", ["t 0 1\nt 1 2\n", "t 0 1\nt 1 2\nt 1 2\n"])
def test_wrong_number_of_entries_is_refused(file: CheckpointFile, entries: str) -> None:
    assert fault_of(file, f"0\n3\n{entries}") is CheckpointFault.FORMAT


@pytest.mark.spec("changelog-restore 9")
def test_tabs_and_several_spaces_separate_fields(file: CheckpointFile) -> None:
    file.path.write_text("0\n2\nt\t0   5\nt \t 1\t6  \n")
    assert file.read() == {T0: 5, T1: 6}


@pytest.mark.spec("changelog-restore 10")
@pytest.mark.parametrize("seed", range(20))
def test_crash_while_writing_leaves_the_old_content_or_the_new_one(seed: int) -> None:
    choice = Random(seed)
    disk = SimulatedDisk()
    disk.make_directory(Path("/task"))
    disk.sync_directory(Path("/"))
    file = CheckpointFile(Path("/task/.checkpoint"), disk=disk)
    file.write(THREE)
    disk.power_fails_at = disk.moment + choice.randrange(1, 5)
    with suppress(PowerLostError):
        file.write({T0: 100})
    disk.crash(choice)
    assert file.read() in (THREE, {T0: 100})


@pytest.mark.spec("changelog-restore 10")
def test_failure_between_temporary_file_and_rename_leaves_the_old_content() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/task"))
    file = CheckpointFile(Path("/task/.checkpoint"), disk=disk)
    file.write(THREE)
    disk.faults.append(Fault("rename"))
    with pytest.raises(CheckpointFileError) as caught:
        file.write({T0: 100})
    assert caught.value.fault is CheckpointFault.DISK
    assert file.read() == THREE
    file.write({T0: 100})
    assert file.read() == {T0: 100}


def test_write_into_a_missing_directory_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFileError) as caught:
        CheckpointFile(tmp_path / "missing" / ".checkpoint").write(THREE)
    assert caught.value.fault is CheckpointFault.DISK


@pytest.mark.spec("changelog-restore 11")
def test_semantics_say_which_record_comes_next() -> None:
    assert OffsetSemantics.NEXT.first_to_fetch(5) == 5
    assert OffsetSemantics.LAST_APPLIED.first_to_fetch(5) == 6
    assert OffsetSemantics.NEXT.first_to_fetch(0) is None  # nothing applied: from the beginning
    assert OffsetSemantics.LAST_APPLIED.first_to_fetch(OFFSET_UNKNOWN) is None


@pytest.mark.parametrize("semantics", OffsetSemantics)
@pytest.mark.parametrize("offset", [None, 0, 5])
def test_entry_of_an_offset_reads_back_as_that_offset(semantics: OffsetSemantics, offset: int | None) -> None:
    assert semantics.last_applied(semantics.entry(offset)) == offset
