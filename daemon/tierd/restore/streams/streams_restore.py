"""restore_streams_store: one partition of a store, from its changelog into the state directory of an application.

::

    begin ─▶ apply records, flush now and then ─▶ complete ─▶ installed ─▶ .checkpoint written, stage removed

The store is built in a stage directory beside those of the applications, with a journal. A run that was killed goes on
after the last flush, or installs what is complete. What an earlier run built is thrown away if it is of another topic,
if the log was cut below it, or if it was begun so long ago that the log cleaner may have removed tombstones that it
lacks. A run that takes so long ends with an error.
"""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tierd.clock import Clock
from tierd.errors import RefusedError, install_extra
from tierd.files import make_private_directory
from tierd.log import OsDisk, unlink_if_there
from tierd.model import TopicPartition, uuid_to_text
from tierd.restore.changelog.changelog_errors import LostPositionError, OutdatedPositionError, StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords
from tierd.restore.journal import Journal, JournalStep
from tierd.restore.plan.tombstone_age import longest_pause_ms, longest_read_ms
from tierd.restore.streams.segment_puts import AppliedRecords
from tierd.restore.streams.state_directory import StreamsStateDirectory
from tierd.restore.streams.streams_store import StreamsStore
from tierd.tasks import run_to_end

if TYPE_CHECKING:
    from tierd.restore.streams.rocks_writers import StoreWriter

ReadChangelog = Callable[[int | None], AsyncGenerator[ChangelogRecords]]
"""Returns the records of the changelog from an offset on, in order; None: from its start. It ends at the target."""

FLUSH_INTERVAL_MS: Final = 30_000
"""Time between two flushes: what a killed run has to apply again."""

MEMORY_BYTES: Final = 400 << 20
"""Records of key-value stores, of all that are restored at a time, that wait to become tables: large tables are few."""

_JOURNAL: Final = "journal"
_BUILT: Final = "store"
_LOG_END: Final = 2**63 - 1
_LAYOUT: Final = 2  # of the stage; an earlier one is thrown away


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredStreamsStore:
    """Result of the restore of one partition of a store.

    Attributes:
        directory: of the store.
        replaced: what was in its place before; None if there was nothing.
        last_offset: of the last record applied, inclusive; None if the changelog had none.
        resumed_after: offset after which this run began; None if it began at the start of the changelog.
        record_count: records that this run applied or skipped.
        skipped: records without a key, of those.
    """

    directory: Path
    replaced: Path | None
    last_offset: int | None
    resumed_after: int | None
    record_count: int
    skipped: int


async def restore_streams_store(
    store: StreamsStore,
    partition: int,
    *,
    state: StreamsStateDirectory,
    identity: ChangelogIdentity,
    read: ReadChangelog,
    clock: Clock,
    memory_bytes: int = MEMORY_BYTES,
) -> RestoredStreamsStore:
    """Restore one partition of a store and install it; Streams started afterwards restores only what follows.

    A cancellation leaves the stage, from which the next run goes on; an installed store is never half of one.

    Args:
        store: facts about the store.
        partition: of the changelog, and of the task.
        state: state directory of the application, locked.
        identity: of the changelog as it is now.
        read: gives the records; those of aborted transactions are left out.
        clock: time for the flushes and for the age of an earlier run.
        memory_bytes: records of a key-value store to hold in memory; other stores have the memory tables of Streams.

    Raises:
        StoreFailedError: the disk is full or failing, or the changelog is not one of such a store.
        RestoreError: the changelog cannot be read.
        StateDirError: the journal cannot be read or written.
        AlreadyRunningError: another process restores this store.
    """
    job = _StoreJob(store, partition, state, identity, clock, memory_bytes=memory_bytes)
    files = ThreadPoolExecutor(1, thread_name_prefix="streams-restore")

    async def run(call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(files, call)

    async def apply_all() -> None:
        if job.is_complete:
            return
        async with aclosing(read(None if job.resumed_after is None else job.resumed_after + 1)) as batches:
            async for records in batches:
                await run(partial(job.apply, records))
        await run(job.complete)

    try:
        await run(job.begin)
        try:
            await apply_all()
        except LostPositionError:
            if job.resumed_after is None:
                raise
            await run(job.begin_anew)
            await apply_all()
        await run(job.install)
        return job.result()
    finally:
        await run_to_end(run(job.close), name="close of a Streams store")
        files.shutdown(wait=False)


class _StoreJob:
    """Files of one restore: stage, journal and writer. Calls block and come from one thread.

    Attributes:
        resumed_after: offset after which this run applies records; None for the start of the changelog.
        is_complete: True once every record is applied and durable.
    """

    def __init__(
        self,
        store: StreamsStore,
        partition: int,
        state: StreamsStateDirectory,
        identity: ChangelogIdentity,
        clock: Clock,
        *,
        memory_bytes: int,
    ) -> None:
        self.resumed_after: int | None = None
        self.is_complete = False
        self._store = store
        self._partition = partition
        self._state = state
        self._identity = identity
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._stage = state.stage_directory(store, partition)
        self._journal: Journal | None = None
        self._writer: StoreWriter | None = None
        self._flushed_ms = 0
        self._since_ms = 0  # wall clock at which the changelog began to be read, in this run or an earlier one
        self._epoch = -1
        self._last_offset: int | None = None
        self._replaced: Path | None = None
        self._record_count = 0
        self._skipped = 0

    def begin(self) -> None:
        """Open what an earlier run left, unless it is of no use any more."""
        with self._failures():
            self._open_journal()
            if self._is_outdated():
                self._remove_stage()
                self._open_journal()
            self._open_store()

    def begin_anew(self) -> None:
        """Throw away what an earlier run left, and begin at the start of the changelog."""
        with self._failures():
            self._remove_stage()
            self._open_journal()
            self._open_store()

    def apply(self, records: ChangelogRecords) -> None:
        """Apply records; now and then everything so far is made durable."""
        if not len(records):
            return
        with self._failures():
            writer = self._opened_writer
            self._require_recent(records)
            writer.apply(records)
            self._record_count += len(records)
            self._epoch = records.last_leader_epoch
            if self._clock.now_ms() - self._flushed_ms >= FLUSH_INTERVAL_MS:
                writer.flush()
                self._note("applied", writer.applied)

    def complete(self) -> None:
        """Finish the files of the store; nothing more is applied."""
        with self._failures():
            writer = self._opened_writer
            writer.finish()
            self._close_writer()
            self._last_offset = writer.applied.offset if writer.applied else None
            self._skipped = writer.skipped
            self._note("complete", writer.applied)
            self.is_complete = True

    def install(self) -> None:
        """Move the store to its place, write its offset and remove the stage."""
        with self._failures():
            self._replaced = self._state.install(self._store, self._partition, self._stage / _BUILT)
            self._state.record_offset(self._store, self._partition, self._last_offset)
            self._remove_stage()

    def result(self) -> RestoredStreamsStore:
        """Return what the run did."""
        return RestoredStreamsStore(
            directory=self._state.store_directory(self._store, self._partition),
            replaced=self._replaced,
            last_offset=self._last_offset,
            resumed_after=self.resumed_after,
            record_count=self._record_count,
            skipped=self._skipped,
        )

    def close(self) -> None:
        """Close the files; the stage stays."""
        self._close_writer()
        self._close_journal()

    # ---------------------------------------------------------------- stage

    def _open_journal(self) -> None:
        make_private_directory(self._stage)
        try:
            self._journal = Journal.open(self._stage / _JOURNAL, self._job())
        except RefusedError:  # of another topic, or of a store with other facts
            self._remove_stage()
            make_private_directory(self._stage)
            self._journal = Journal.open(self._stage / _JOURNAL, self._job())

    def _open_store(self) -> None:
        step = self._last_step()
        self.is_complete = step is not None and step["step"] == "complete"
        self._flushed_ms = self._since_ms = self._clock.now_ms()
        self.resumed_after = self._last_offset = None
        if self.is_complete:
            self._last_offset = step["offset"] if step else None
            return
        resume = AppliedRecords(step["offset"], step["stream_time_ms"]) if step else None
        if resume is None:
            self._remove(self._stage / _BUILT)
        self._writer = self._opened_store(resume)
        if resume and self._writer.applied is None:  # the last step of the writer took its mark away, and no more
            self._close_writer()
            self._remove(self._stage / _BUILT)
            self._writer = self._opened_store(None)
        self.resumed_after = self._writer.applied.offset if self._writer.applied else None
        if step and self.resumed_after is not None:
            self._since_ms = step["since_ms"]

    def _opened_store(self, resume: AppliedRecords | None) -> "StoreWriter":
        try:
            from tierd.restore.streams.rocks_writers import open_writer  # noqa: PLC0415  rocksdict is an extra
        except ModuleNotFoundError as error:
            raise StoreFailedError(
                self._store.name,
                f"needs the package {error.name}, which is not installed",
                remedy=install_extra("rocksdb"),
            ) from error
        return open_writer(self._store, self._stage / _BUILT, resume=resume, memory_bytes=self._memory_bytes)

    def _job(self) -> JournalStep:
        store, topic_id = self._store, self._identity.topic_id
        return {
            "restore": "streams-store",
            "layout": _LAYOUT,
            "application_id": self._state.application_id,
            "task": store.task(self._partition),
            "store": store.name,
            "type": store.type.value,
            "retention_ms": store.retention_ms,
            "segment_interval_ms": store.segment_interval_ms,
            "changelog": str(TopicPartition(store.changelog, self._partition)),
            "topic_id": uuid_to_text(topic_id) if topic_id else None,
        }

    def _last_step(self) -> JournalStep | None:
        return self._opened_journal.steps[-1] if self._opened_journal.steps else None

    def _note(self, step: str, applied: AppliedRecords | None) -> None:
        self._flushed_ms = self._clock.now_ms()
        self._opened_journal.append(
            {
                "step": step,
                "offset": applied.offset if applied else None,
                "stream_time_ms": applied.stream_time_ms if applied else None,
                "epoch": self._epoch,
                "since_ms": self._since_ms,
            }
        )

    def _is_outdated(self) -> bool:
        """Return True if the log below the last step may differ now from what was applied."""
        step = self._last_step()
        if step is None:
            return False
        limit_ms = self._identity.delete_retention_ms
        if limit_ms is not None and self._clock.now_ms() - step["since_ms"] > longest_pause_ms(limit_ms):
            return True
        if step["offset"] is None or step["epoch"] < 0 or not self._identity.lineage:
            return False
        end = self._identity.lineage.end_offset_for(step["epoch"], log_end_offset=_LOG_END)
        return bool(end.end_offset <= step["offset"])

    def _require_recent(self, records: ChangelogRecords) -> None:
        """Raise if the log may have lost tombstones of keys that were applied before."""
        limit_ms, age_ms = self._identity.delete_retention_ms, self._clock.now_ms() - self._since_ms
        if limit_ms is not None and age_ms > longest_read_ms(limit_ms):
            raise OutdatedPositionError(
                TopicPartition(self._store.changelog, self._partition),
                offset=records.first_offset,
                age_ms=age_ms,
                delete_retention_ms=limit_ms,
            )

    def _remove_stage(self) -> None:
        """Remove the stage, its journal first: no journal may tell of files of which a part is gone."""
        self._close_writer()
        self._close_journal()
        if unlink_if_there(OsDisk(), self._stage / _JOURNAL):
            OsDisk().sync_directory(self._stage)
        self._remove(self._stage)

    def _remove(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)
            OsDisk().sync_directory(path.parent)

    # ---------------------------------------------------------------- owned files

    @property
    def _opened_journal(self) -> Journal:
        assert self._journal is not None, "begin comes first"
        return self._journal

    @property
    def _opened_writer(self) -> "StoreWriter":
        assert self._writer is not None, "begin comes first"
        return self._writer

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Translate what the file system says."""
        try:
            yield
        except OSError as error:
            raise StoreFailedError(self._store.name, str(error)) from error
