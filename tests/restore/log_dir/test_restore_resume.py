"""A restore that was killed or cancelled anywhere: the next run ends in the same bytes (changelog-restore 4.2)."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.forking_parent import ForkingParent
from tests.log.logs import read_all
from tests.restore.log_dir.killed_restore import NEVER
from tests.restore.log_dir.lab import (
    PARTITION,
    Lab,
    closed,
    content_of,
    lost_partition,
    new_log,
    values,
    write_segments,
)
from tierd.errors import RefusedError, RetriableRemoteStorageError
from tierd.log import file_name, read_offset_checkpoint
from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import SegmentStorage
from tierd.restore.journal import Journal, JournalStep
from tierd.restore.log_dir.restored_partition import RestoreStage
from tierd.restore.plan.partition_plan import RestoreMode

STEPS = ["planned", "fetched", "fetched", "fetched", "verified", "staged", "swapped", "checkpointed", "done"]


class KilledError(BaseException):
    """The end of the process."""


class DoomedJournal:
    """Writes of a journal until the process is killed: before a write for an even number, else after it.

    Attributes:
        steps: those that were reached.
    """

    def __init__(self, kill_at: int) -> None:
        self.steps: list[str] = []
        self._kill_at = kill_at
        self._append = Journal.append

    @property
    def append(self) -> Callable[[Journal, JournalStep], None]:
        """Return the method in the place of ``Journal.append``."""

        def append(journal: Journal, step: JournalStep) -> None:
            self.steps.append(step["stage"])
            if len(self.steps) * 2 - 2 == self._kill_at:
                raise KilledError
            self._append(journal, step)
            if len(self.steps) * 2 - 1 == self._kill_at:
                raise KilledError

        return append


def outcome(lab: Lab) -> dict[str, bytes]:
    """Return all that is in the log dir, by its path."""
    files = (path for path in lab.log_dir.rglob("*") if path.is_file())
    return {str(path.relative_to(lab.log_dir)): path.read_bytes() for path in files}


def existing_directory(lab: Lab) -> dict[str, bytes]:
    log = new_log(lab.log_dir)
    write_segments(log, 1, batches=1)
    return content_of(closed(log))


@pytest.mark.spec("changelog-restore 73")
@pytest.mark.parametrize("mode", [RestoreMode.LAST_COPY, RestoreMode.IMPORT])
async def test_restore_that_was_killed_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: RestoreMode
) -> None:
    """Kill it before each step is written, and after."""
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, mode)
    await lab.restore(plan)
    undisturbed = outcome(lab)
    for kill_at in range(2 * len(STEPS)):
        lab.begin_anew()
        journal = DoomedJournal(kill_at)
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "append", journal.append)
            with pytest.raises((KilledError, BaseExceptionGroup)):
                await lab.restore(plan)
        assert journal.steps == STEPS[: len(journal.steps)]
        if "staged" not in journal.steps:
            assert not lab.directory.exists()
        await lab.restore(plan)
        assert outcome(lab) == undisturbed, f"killed at {kill_at}"


@pytest.mark.spec("changelog-restore 73")
def test_restore_whose_process_is_killed_at_any_step_ends_in_the_same_bytes(tmp_path: Path) -> None:
    with ForkingParent("tests.restore.log_dir.killed_restore") as parent:

        def exit_code(root: Path, *, moment: int = NEVER) -> int:
            parent.say(f"{moment} {root}")
            return int(parent.hear())

        (tmp_path / "undisturbed").mkdir()
        assert exit_code(tmp_path / "undisturbed") == 0
        undisturbed = outcome(Lab(tmp_path / "undisturbed"))
        for moment in range(2 * len(STEPS)):
            root = tmp_path / str(moment)
            root.mkdir()
            assert exit_code(root, moment=moment) == -signal.SIGKILL
            before = outcome(Lab(root))
            assert not any(name.startswith("orders-0/") for name in before) or moment >= 2 * STEPS.index("swapped")
            assert exit_code(root) == 0
            assert outcome(Lab(root)) == undisturbed, f"killed at {moment}"


@pytest.mark.spec("changelog-restore 73")
async def test_existing_directory_is_kept_when_the_restore_is_killed_between_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    before = existing_directory(lab)
    rename = Path.rename

    def killing(source: Path, target: Path) -> Path:
        if target == lab.directory:
            raise KilledError
        return rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killing)
        with pytest.raises(KilledError):
            await lab.restore(plan)
    assert not lab.directory.exists()
    restored = await lab.restore(plan)
    assert restored.moved_aside is not None
    assert content_of(restored.moved_aside) == before
    assert lab.load().log_end_offset == restored.log_end_offset


class CountingStorage(SegmentStorage):
    """Storage that counts the logs that are fetched, and fails from a number on."""

    def __init__(self, lab: Lab, *, fails_from: int = 1 << 30) -> None:
        super().__init__(lab.store, cluster_id="dGllcmQtc3ludGhldGljLQ", broker_id=1, chunk_size=1 << 20)
        self.fetched: list[int] = []
        self.fails_from = fails_from

    async def stream_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        self.fetched.append(metadata.start_offset)
        if metadata.start_offset >= self.fails_from:
            raise RetriableRemoteStorageError("the store is away")
        async for piece in super().stream_log_segment(metadata, start_position, end_position):
            yield piece


async def test_segments_fetched_before_the_store_went_away_are_not_fetched_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    lab.storage = CountingStorage(lab, fails_from=6)
    with pytest.raises(RetriableRemoteStorageError):
        await lab.restore(plan)
    assert not lab.directory.exists()
    reached = {path.name for path in lab.stage.glob("*/*/parts/*.log")}
    assert reached
    lab.storage = again = CountingStorage(lab)
    restored = await lab.restore(plan)
    assert 6 in again.fetched
    assert lab.load().log_end_offset == restored.log_end_offset


async def test_damaged_file_in_the_stage_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)

    def killing(journal: Journal, line: JournalStep) -> None:
        if line["stage"] == "verified":
            raise KilledError
        write(journal, line)

    write = Journal.append
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", killing)
        with pytest.raises(KilledError):
            await lab.restore(plan)
    damaged, *_ = sorted(lab.stage.glob("*/*/parts/*.log"))
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    lab.storage = again = CountingStorage(lab)
    await lab.restore(plan)
    assert again.fetched == [0]


async def test_restore_of_what_is_in_place_does_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    first = await lab.restore(plan)
    before = outcome(lab)
    lab.storage = again = CountingStorage(lab)
    assert await lab.restore(plan) == first
    assert (again.fetched, outcome(lab)) == ([], before)


async def test_restored_directory_that_was_lost_again_is_restored_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    await lab.restore(plan)
    before = outcome(lab)
    for path in lab.directory.iterdir():
        path.unlink()
    lab.directory.rmdir()
    await lab.restore(plan)
    assert outcome(lab) == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["removed", "emptied"])
async def test_restored_directory_that_has_lost_a_log_is_restored_again(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    lab = Lab(tmp_path)
    log = new_log(lab.root / "lost")
    write_segments(log, 3)
    lost = values(read_all(log))
    plan = lab.plan(await lab.copy(closed(log)))
    await lab.restore(plan)
    damage(lab.directory / file_name(20, ".log"))

    restored = await lab.restore(plan)

    assert values(read_all(lab.load())) == lost
    assert restored.moved_aside is not None


@pytest.mark.parametrize("gap", [0, 10])
async def test_restored_directory_to_which_a_broker_has_added_stays(tmp_path: Path, gap: int) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    first = await lab.restore(plan, known_end_offset=plan.end_offset + gap)
    with max(lab.directory.glob("*.log")).open("ab") as active:
        active.write(b"written by the broker")
    before = content_of(lab.directory)
    assert await lab.restore(plan, known_end_offset=plan.end_offset + gap) == first
    assert content_of(lab.directory) == before


async def test_directory_that_is_lost_behind_its_rename_is_restored_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    with monkeypatch.context() as patched:
        doomed = DoomedJournal(2 * STEPS.index("swapped") + 1)
        patched.setattr(Journal, "append", doomed.append)
        with pytest.raises(KilledError):
            await lab.restore(plan)
    before = content_of(lab.directory)
    lab.directory.rename(tmp_path / "gone")

    await lab.restore(plan)

    assert content_of(lab.directory) == before


async def test_other_arguments_begin_another_restore_once_the_last_one_is_done(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    log = new_log(lab.root / "lost")
    write_segments(log, 3)
    lost = values(read_all(log))
    segments = await lab.copy(closed(log))
    await lab.restore(lab.plan(segments[:2], end_offset=30))
    earlier = content_of(lab.directory)

    restored = await lab.restore(lab.plan(segments))

    assert values(read_all(lab.load())) == lost
    assert restored.moved_aside is not None
    assert content_of(restored.moved_aside) == earlier


async def test_tier_that_has_grown_is_restored_up_to_its_new_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    log = new_log(lab.root / "lost")
    write_segments(log, 3)
    lost = values(read_all(log))
    segments = await lab.copy(closed(log))

    def killing(journal: Journal, line: JournalStep) -> None:
        write(journal, line)
        if line["stage"] == "staged":
            raise KilledError

    write = Journal.append
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", killing)
        with pytest.raises(KilledError):
            await lab.restore(lab.plan(segments[:2]))
    lab.storage = again = CountingStorage(lab)
    restored = await lab.restore(lab.plan(segments))
    assert (restored.end_offset, again.fetched) == (60, [40])
    assert values(read_all(lab.load())) == lost


async def test_other_arguments_for_a_partition_that_is_being_restored_are_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    lab.storage = CountingStorage(lab, fails_from=0)
    with pytest.raises(RetriableRemoteStorageError):
        await lab.restore(plan)
    with pytest.raises(RefusedError, match="journal of another restore"):
        await lab.restore(replace(plan, mode=RestoreMode.REPLICA))


async def test_cancelled_restore_leaves_nothing_half_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel at the n-th piece of work, for each n, until a run gets through."""
    lab = Lab(tmp_path)
    log = new_log(lab.root / "lost")
    write_segments(log, 1, batches=2)
    lost = values(read_all(log))
    plan = lab.plan(await lab.copy(closed(log)))
    to_thread, left = asyncio.to_thread, [0]

    async def cancelling(work: Callable[..., object], *args: object, **kwargs: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            running.cancel()
        return await to_thread(work, *args, **kwargs)

    cancelled = 0
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "to_thread", cancelling)
        while True:
            left[0] = cancelled + 1
            running = asyncio.ensure_future(lab.restore(plan))
            try:
                restored = await running
            except asyncio.CancelledError:
                cancelled += 1
                assert not (lab.log_dir / ".lock").exists()
                assert not lab.directory.exists() or values(read_all(lab.load())) == lost
            else:
                break
    assert cancelled > 10
    starts = read_offset_checkpoint(lab.log_dir / "recovery-point-offset-checkpoint")
    assert starts[PARTITION.topic_partition] == restored.log_end_offset
    assert values(read_all(lab.load())) == lost


async def test_reported_bytes_are_those_of_the_plan(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = await lost_partition(lab, RestoreMode.LAST_COPY)
    await lab.restore(plan)
    assert sum(size for _, size in lab.reported) == plan.fetch_bytes
    stages = list(dict.fromkeys(stage for stage, _ in lab.reported))
    assert stages == list(RestoreStage)
