"""Restore of one partition into a log dir (changelog-restore 4.2).

::

    planned ──► fetched (a part each) ──► verified ──► staged ──► swapped ──► checkpointed ──► done
    └────────────── in the stage: nothing is in the log dir ───┘  └── under the log dir's lock ────┘

A run that ended anywhere is resumed by the same call. The stage of a partition::

    <stage>/<topic>-<partition>/<number of the job>/
        journal          steps, see RestoreJournal
        parts/           fetched logs with their sound indexes, named by segment id
        ready/           the directory that is renamed into the log dir
        aside/           the directory that was in the log dir before
        manifest.json    report, and the digest of every file
"""

import asyncio
import glob
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tierd.errors import LogError, PlanOutdatedError, RefusedError
from tierd.files import make_private_directory
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA,
    OsDisk,
    delete_clean_shutdown,
    identify_directory,
    read_offset_checkpoint,
    read_producer_snapshot,
)
from tierd.model import is_topic_name, uuid_to_text
from tierd.remote import RemoteStorageManager
from tierd.restore.journal import JournalOfAnotherJobError
from tierd.restore.log_dir.checkpoint_lines import CheckpointLines
from tierd.restore.log_dir.held_log_dir import PARTS
from tierd.restore.log_dir.kept_batches import CheckedLog, DroppedRange
from tierd.restore.log_dir.local_remains import JoinedRange, LocalRemains, RemainsDirectory, read_local_remains
from tierd.restore.log_dir.part_fetch import PartFetch
from tierd.restore.log_dir.partition_stage import ChosenBatches, PartitionStage, choose_batches
from tierd.restore.log_dir.restore_journal import JOURNAL, RestoreJournal, identity_of, is_done
from tierd.restore.log_dir.restore_manifest import MANIFEST, has_all_logs, write_manifest
from tierd.restore.log_dir.restored_partition import LogDirRequest, OnRestoreProgress, RestoredPartition, RestoreStage
from tierd.restore.log_dir.segment_staging import StagedSegment
from tierd.restore.plan.partition_plan import PartitionPlan, PlanSeverity, RestoreMode, SegmentPart
from tierd.tasks import in_thread, together

_PARALLEL_FETCHES: Final = 4
_IN_LOG_DIR: Final = (RestoreStage.SWAPPED, RestoreStage.CHECKPOINTED, RestoreStage.DONE)


async def restore_partition(
    plan: PartitionPlan, request: LogDirRequest, storage: RemoteStorageManager, *, on_progress: OnRestoreProgress
) -> RestoredPartition:
    """Carry out ``plan``: the whole directory, or none, is in the log dir afterwards.

    A cancellation or an error leaves a stage from which the same call goes on. After the directory's rename the
    checkpoints of the log dir follow; a call that was killed between both is to be repeated before a broker starts.
    A call for what is restored already, and is still in the log dir, returns the report of that restore.

    Raises:
        RefusedError: the plan is refused or is of another partition, another log dir of the broker has the partition,
            the existing directory is of another topic id, or the stage has another restore of the partition.
        PlanOutdatedError: a log cleaner has rewritten a directory since, which the plan joins to the tier.
        AlreadyRunningError: another process restores the partition.
        RemoteStorageError: the store failed for longer than its retries, or has lost or damaged an object.
        LogError: a file in the stage or in the existing directory changed, or cannot be read; or the staged directory
            fails its check.
        StateDirError: the journal cannot be written, or is damaged.
        OSError: the disk is full or failing.
    """
    return await _PartitionRestore(plan, request, storage, on_progress).run()


class _PartitionRestore:
    def __init__(
        self, plan: PartitionPlan, request: LogDirRequest, storage: RemoteStorageManager, on_progress: OnRestoreProgress
    ) -> None:
        self._plan = plan
        self._request = request
        self._storage = storage
        self._on_progress = on_progress
        self._held = request.log_dir
        self._name = str(request.partition)
        self._final = self._held.target.log_dir / self._name
        self._work = Path()  # of the job, once its journal is open

    async def run(self) -> RestoredPartition:
        _require_allowed(self._plan, self._request)
        await in_thread(self._require_place)
        opened: list[RestoreJournal] = []
        try:
            await in_thread(self._open_journal, opened)
            journal = opened[0]
            if await in_thread(self._is_to_stage, journal):
                await self._stage(journal)
            async with self._held.changing:
                await self._reach(journal, RestoreStage.SWAPPED, lambda: self._swap(journal))
                await self._reach(journal, RestoreStage.CHECKPOINTED, lambda: self._write_checkpoints(journal))
            await self._reach(journal, RestoreStage.DONE, self._clear)
            return await in_thread(self._report, journal)
        finally:
            for each in opened:
                each.close()

    # Before

    def _require_place(self) -> None:
        for log_dir in self._held.target.other_log_dirs:
            if (log_dir / self._name).exists():
                raise RefusedError(
                    f"{log_dir / self._name} is there: a broker does not start with a partition in two log dirs",
                    remedy="restore into that log dir, or move that directory away",
                )
        try:
            found = identify_directory(self._final)
        except LogError:  # not there, or not to be understood: it is moved aside
            return
        wanted = self._request.partition.topic_id
        if found is not None and found.topic_id not in (None, wanted):
            raise RefusedError(
                f"{self._final} is of topic id {found.topic_id}, not {wanted}: the topic was deleted and made again",
                remedy="move the directory away if the new topic's records are not wanted, or restore with mode import",
            )

    def _open_journal(self, opened: list[RestoreJournal]) -> None:
        """Open the journal of this restore; begin another job when what the last one restored is not there any more.

        A job that is done does not keep one with other arguments from being begun. The journal is in ``opened`` also
        when the caller was cancelled meanwhile.
        """
        partition = self._held.target.stage / self._name
        make_private_directory(partition)
        number = max((int(path.name) for path in partition.iterdir() if path.name.isdigit()), default=1)
        job = {
            "partition": self._name,
            "topic_id": str(self._request.partition.topic_id),
            "restored_from": str(self._plan.partition.topic_id),
            "mode": self._plan.mode.value,
            "log_dir": str(self._held.target.log_dir),
            "target_offset": self._plan.target_offset,
        }
        try:
            journal = self._open_job(partition / str(number), job)
        except JournalOfAnotherJobError as error:
            if not is_done(error.steps):
                raise
            journal = self._open_job(partition / str(number + 1), job)
        if journal.stage in _IN_LOG_DIR and not self._has_what_was_restored(journal):
            journal.close()
            journal = self._open_job(partition / str(number + 1), job)
        opened.append(journal)

    def _open_job(self, work: Path, job: dict[str, Any]) -> RestoreJournal:
        make_private_directory(work)
        make_private_directory(work / PARTS)
        for directory in (work, work.parent, work.parent.parent):
            OsDisk().sync_directory(directory)
        self._work = work
        return RestoreJournal.open(work / JOURNAL, job)

    def _is_in_place(self, journal: RestoreJournal) -> bool:
        staged = journal.staged
        return staged is not None and identity_of(self._final) == staged["identity"]

    def _has_what_was_restored(self, journal: RestoreJournal) -> bool:
        return self._is_in_place(journal) and has_all_logs(self._final, self._manifest)

    def _is_to_stage(self, journal: RestoreJournal) -> bool:
        """Return False if the directory is staged as it is wanted now, or is in the log dir already."""
        staged = journal.staged
        if staged is None:
            return True
        if journal.stage in _IN_LOG_DIR or self._is_in_place(journal):
            return False
        is_other = not journal.has_planned(self._plan) or self._known_end > staged["report"]["log_end_offset"]
        return is_other or identity_of(self._ready) != staged["identity"]

    @property
    def _ready(self) -> Path:
        return self._work / "ready" / self._name

    @property
    def _known_end(self) -> int:
        return 0 if self._plan.mode is RestoreMode.REPLICA else self._request.known_end_offset

    # In the stage

    async def _stage(self, journal: RestoreJournal) -> None:
        if not journal.has_planned(self._plan):
            await in_thread(journal.write_planned, self._plan)
        self._on_progress(RestoreStage.PLANNED, 0)
        logs = await self._fetch(journal)
        local = await in_thread(self._local_remains)
        self._require_as_planned(local)
        chosen = await choose_batches(self._plan, logs, local)
        await in_thread(journal.write, RestoreStage.VERIFIED)
        self._on_progress(RestoreStage.VERIFIED, 0)
        stage = PartitionStage(self._ready, self._work / "check", self._plan, self._request.partition)
        segments, log_start, log_end = await stage.write(
            chosen, lineage=local.lineage, known_end_offset=max(self._known_end, local.end_offset)
        )
        report = _report_of(chosen, segments, log_start_offset=log_start, log_end_offset=log_end)
        joined = [
            each._replace(end_offset=min(each.end_offset, chosen.end_offset))
            for each in local.joined
            if each.start_offset < chosen.end_offset
        ]
        report |= {
            "joined": [[str(each.directory), each.start_offset, each.end_offset] for each in joined],
            "not_merged": {str(directory): reason for directory, reason in local.refusals.items()},
        }
        highest = await in_thread(_highest_in_snapshots, self._ready)
        report["highest_producer_id"] = max(report["highest_producer_id"], highest)
        await in_thread(self._finish_stage, journal, segments, report)
        self._on_progress(RestoreStage.STAGED, 0)

    async def _fetch(self, journal: RestoreJournal) -> list[CheckedLog]:
        known, parts = journal.fetched(), self._plan.parts
        fetch = PartFetch(self._storage, self._work / PARTS, lambda size: self._on_progress(RestoreStage.FETCHED, size))
        writing = asyncio.Lock()

        async def one(part: SegmentPart) -> CheckedLog:
            file = known.get(_segment_id(part))
            fetched, now = await fetch.fetch(part, file)
            if now != file:
                async with writing:
                    await in_thread(journal.write_fetched, part.metadata.segment, now)
            return fetched

        works = {f"fetch part {n}, {part.metadata.segment}": partial(one, part) for n, part in enumerate(parts)}
        return await together(works, at_once=_PARALLEL_FETCHES)

    def _require_as_planned(self, local: LocalRemains) -> None:
        """Refuse a plan whose joins are not possible any more: a standby that runs goes on with cleaning."""
        for join in self._plan.joins:
            if local.is_cleaned(join.directory):
                raise PlanOutdatedError(
                    f"{self._name}: the log cleaner has rewritten {join.directory} since the plan, and what it has from"
                    f" offset {join.start_offset} on cannot be joined to the tier any more",
                    remedy="run the same command again: it plans anew, and begins the log with that directory",
                )

    def _local_remains(self) -> LocalRemains:
        plan, request = self._plan, self._request
        if plan.mode is RestoreMode.IMPORT:  # the existing directory is of another topic
            name, own = str(plan.partition), []
        else:
            existing = self._final if self._final.exists() else self._moved_aside or self._final
            name, own = self._name, [self._remains_of(self._held.target.log_dir, existing)]
        standbys = [self._remains_of(log_dir, log_dir / name) for log_dir in request.standbys]
        is_wanted = plan.target_offset is None and (request.merges_local or bool(standbys))
        return read_local_remains([*own, *standbys], plan, self._work / PARTS, is_wanted=is_wanted)

    def _remains_of(self, log_dir: Path, directory: Path) -> RemainsDirectory:
        cleaned = read_offset_checkpoint(log_dir / CLEANER_OFFSET_CHECKPOINT)
        return RemainsDirectory(path=directory, cleaned_offset=cleaned.get(self._plan.partition.topic_partition, 0))

    @property
    def _moved_aside(self) -> Path | None:
        """Return the directory that this job has moved out of the log dir."""
        return next(iter(sorted(self._work.glob(f"aside/*/{glob.escape(self._name)}"))), None)

    def _finish_stage(
        self, journal: RestoreJournal, segments: tuple[StagedSegment, ...], report: dict[str, Any]
    ) -> None:
        self._held.give_to_owner(self._ready)
        write_manifest(self._manifest, self._ready, segments, {"partition": self._name, **report})
        OsDisk().sync_directory(self._ready.parent)
        OsDisk().sync_directory(self._work)
        identity = identity_of(self._ready)
        assert identity is not None, "its partition.metadata was just written"
        journal.write_staged(identity, report)

    @property
    def _manifest(self) -> Path:
        return self._work / MANIFEST

    # In the log dir

    async def _reach(self, journal: RestoreJournal, stage: RestoreStage, work: Callable[[], None]) -> None:
        """Do the work of a stage, unless it was reached before, and write it into the journal."""
        reached = journal.stage
        if reached in _IN_LOG_DIR and _IN_LOG_DIR.index(reached) >= _IN_LOG_DIR.index(stage):
            return

        def do() -> None:
            work()
            journal.write(stage)

        await in_thread(do)
        self._on_progress(stage, 0)

    def _swap(self, journal: RestoreJournal) -> None:
        """Rename the staged directory into the log dir; one that is there goes aside first."""
        disk, log_dir = OsDisk(), self._held.target.log_dir
        delete_clean_shutdown(disk, log_dir)
        if self._is_in_place(journal):
            return
        if self._final.exists() or self._final.is_symlink():
            aside = self._free_place_aside()
            disk.rename(self._final, aside)
            disk.sync_directory(aside.parent)
        disk.rename(self._ready, self._final)
        disk.sync_directory(log_dir)
        disk.sync_directory(self._ready.parent)

    def _free_place_aside(self) -> Path:
        aside = self._work / "aside"
        number = sum(1 for _ in aside.iterdir()) if aside.exists() else 0
        make_private_directory(aside / str(number))
        OsDisk().sync_directory(aside)
        OsDisk().sync_directory(self._work)
        return aside / str(number) / self._name

    def _write_checkpoints(self, journal: RestoreJournal) -> None:
        assert journal.staged is not None, "the directory is in the log dir"
        report, mode = journal.staged["report"], self._plan.mode
        CheckpointLines(
            log_start_offset=report["log_start_offset"],
            log_end_offset=report["log_end_offset"],
            is_only_copy=mode is not RestoreMode.REPLICA,
            may_keep_cleaned=mode is not RestoreMode.IMPORT and not self._plan.is_compacted,
        ).update(self._held, self._request.partition.topic_partition)

    def _clear(self) -> None:
        """Remove what was only needed to go on. The directory that was moved aside, and the manifest, stay."""
        for name in (PARTS, "ready", "check"):
            shutil.rmtree(self._work / name, ignore_errors=True)

    def _report(self, journal: RestoreJournal) -> RestoredPartition:
        assert journal.staged is not None, "the directory is in the log dir"
        report = journal.staged["report"]
        joined = tuple(JoinedRange(Path(directory), *offsets) for directory, *offsets in report["joined"])
        return RestoredPartition(
            partition=self._request.partition,
            directory=self._final,
            log_start_offset=report["log_start_offset"],
            end_offset=report["end_offset"],
            log_end_offset=report["log_end_offset"],
            merged_offset=joined[0].start_offset if joined else None,
            joined=joined,
            dropped=tuple(DroppedRange(*each) for each in report["dropped"]),
            segment_count=report["segment_count"],
            batch_count=report["batch_count"],
            size_bytes=report["size_bytes"],
            highest_producer_id=report["highest_producer_id"],
            rebuilt_indexes=report["rebuilt_indexes"],
            not_merged={Path(directory): reason for directory, reason in report["not_merged"].items()},
            moved_aside=self._moved_aside,
            manifest=self._manifest,
        )


def _require_allowed(plan: PartitionPlan, request: LogDirRequest) -> None:
    refusal = next((each for each in plan.findings if each.severity is not PlanSeverity.WARNING), None)
    if refusal is not None:
        raise RefusedError(f"{plan.partition}: {refusal.text}", remedy=refusal.remedy)
    topic = request.partition.topic
    if not is_topic_name(topic) or topic == CLUSTER_METADATA:
        raise RefusedError(f"{topic!r} is not the name of a topic that a broker serves", remedy="give another name")
    if plan.mode is not RestoreMode.IMPORT and request.partition != plan.partition:
        raise RefusedError(
            f"{plan.partition} cannot come back as {request.partition} with topic id {request.partition.topic_id}",
            remedy="restore it with mode import",
        )


def _highest_in_snapshots(directory: Path) -> int:
    """Return the highest producer id in the producer snapshots of a staged directory; -1 without one."""
    snapshots = [read_producer_snapshot(path) for path in directory.glob("*.snapshot")]
    return max((entry.producer_id for entries in snapshots for entry in entries), default=-1)


def _segment_id(part: SegmentPart) -> str:
    return uuid_to_text(part.metadata.segment.id)


def _report_of(
    chosen: ChosenBatches, segments: tuple[StagedSegment, ...], *, log_start_offset: int, log_end_offset: int
) -> dict[str, Any]:
    return {
        "log_start_offset": log_start_offset,
        "end_offset": chosen.end_offset,
        "log_end_offset": log_end_offset,
        "dropped": [list(each) for each in chosen.dropped],
        "segment_count": len(segments),
        "batch_count": sum(segment.batch_count for segment in segments),
        "size_bytes": sum(segment.size_bytes for segment in segments),
        "highest_producer_id": max((each.log.checked.highest_producer_id for each in chosen.batches), default=-1),
        "rebuilt_indexes": sum(segment.has_rebuilt_indexes for segment in segments),
    }
