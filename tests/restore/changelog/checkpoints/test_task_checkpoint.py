from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.fakes.simulated_disk import PowerLostError, SimulatedDisk
from tierd.model import Lineage, TopicPartition
from tierd.restore.changelog.changelog_errors import CheckpointFault, CheckpointFileError
from tierd.restore.changelog.checkpoints.checkpoint_file import CheckpointFile, OffsetSemantics
from tierd.restore.changelog.checkpoints.checkpoint_meta import CheckpointMeta
from tierd.restore.changelog.checkpoints.task_checkpoint import CheckpointedOffset, TaskCheckpoint

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
META = CheckpointMeta(
    offset=5,
    semantics=OffsetSemantics.LAST_APPLIED,
    topic_id=UUID(int=3),
    leader_epoch=2,
    read_since_ms=1_700_000_000_000,
    store_id="a store",
    lineage=Lineage.of([(1, 0), (2, 4)]),
    known_end_offset=8,
)


def at(offset: int) -> CheckpointedOffset:
    """Return an entry with all facts."""
    return CheckpointedOffset(has_entry=True, last_applied=offset, meta=replace(META, offset=offset))


def test_written_offsets_and_facts_are_loaded(tmp_path: Path) -> None:
    checkpoint = TaskCheckpoint(tmp_path)
    offsets = {T0: at(5), T1: CheckpointedOffset(has_entry=True, last_applied=None, meta=None)}
    checkpoint.write(offsets)
    assert TaskCheckpoint(tmp_path).load() == offsets
    assert (tmp_path / ".checkpoint").read_text() == "0\n2\nt 0 5\nt 1 -4\n"


def test_entry_that_is_left_out_goes_from_both_files(tmp_path: Path) -> None:
    checkpoint = TaskCheckpoint(tmp_path)
    checkpoint.write({T0: at(5), T1: at(6)})
    checkpoint.write({T1: at(7)})
    assert checkpoint.load() == {T1: at(7)}
    checkpoint.write({})
    assert list(tmp_path.iterdir()) == []


def test_side_file_says_with_which_semantics_an_offset_was_written(tmp_path: Path) -> None:
    entry = CheckpointedOffset(has_entry=True, last_applied=5, meta=replace(META, semantics=OffsetSemantics.NEXT))
    TaskCheckpoint(tmp_path, semantics=OffsetSemantics.NEXT).write({T0: entry})
    assert (tmp_path / ".checkpoint").read_text() == "0\n1\nt 0 6\n"
    assert TaskCheckpoint(tmp_path, semantics=OffsetSemantics.LAST_APPLIED).load()[T0].last_applied == 5


def test_offset_that_another_program_wrote_has_the_semantics_asked_for(tmp_path: Path) -> None:
    TaskCheckpoint(tmp_path).write({T0: at(5)})
    CheckpointFile(tmp_path / ".checkpoint").write({T0: 9})
    assert TaskCheckpoint(tmp_path, semantics=OffsetSemantics.NEXT).load()[T0].last_applied == 8


def test_start_of_processing_leaves_facts_of_transactional_stores_only(tmp_path: Path) -> None:
    checkpoint = TaskCheckpoint(tmp_path)
    checkpoint.write({T0: at(5), T1: at(6)})
    checkpoint.begin_processing({T1})
    assert not (tmp_path / ".checkpoint").exists()
    assert checkpoint.load() == {T1: replace(at(6), has_entry=False, last_applied=None)}
    checkpoint.begin_processing(())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"version":2,"changelogs":{}}', '{"version":1,"changelogs":{"t-0":{}}}', '{"version":1,"changelogs":'],
)
def test_damaged_side_file_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / ".checkpoint.meta").write_text(content)
    with pytest.raises(CheckpointFileError, match=r"\.checkpoint\.meta") as caught:
        TaskCheckpoint(tmp_path).load()
    assert caught.value.fault is CheckpointFault.FORMAT


@pytest.mark.parametrize("seed", range(30))
def test_crash_leaves_no_new_offset_with_newer_facts_and_no_offset_without_facts(seed: int) -> None:
    choice = Random(seed)
    disk = SimulatedDisk()
    disk.make_directory(Path("/task"))
    disk.sync_directory(Path("/"))
    checkpoint = TaskCheckpoint(Path("/task"), disk=disk)
    checkpoint.write({T0: at(5)})
    disk.power_fails_at = disk.moment + choice.randrange(1, 12)
    with suppress(PowerLostError):
        checkpoint.write({T0: at(10), T1: at(3)})
    disk.crash(choice)
    loaded = checkpoint.load()
    for entry in loaded.values():
        if entry.has_entry:
            assert entry.meta is not None
            assert entry.last_applied is not None
            assert entry.meta.offset <= entry.last_applied
