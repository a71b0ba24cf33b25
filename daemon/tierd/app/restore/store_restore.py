"""StoreRestore: changelogs of the tier as state stores on this host, planned and carried out (changelog-restore 3).

::

    <into>/<topic>-<partition>/sqlite/     the store, with the offset of the last applied record
                              /rocksdb/
                              /            facts about the changelog, by which a later run goes on or begins anew
                              /sqlite.values   "plain" or "timestamped"

Stores of a Kafka Streams application lie in its ``state.dir`` instead, as the application lays them out.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from tierd.app.engine.deployment import Deployment
from tierd.app.restore.catalogue_facts import read_catalogue
from tierd.app.restore.restore_source import RestoreSource, SourceRequest, restore_source
from tierd.app.restore.topic_facts import topic_facts
from tierd.clock import Clock, SystemClock
from tierd.errors import RefusedError, StateDirError
from tierd.files import make_private_directory
from tierd.kernels import compile_kernels_for
from tierd.log import OsDisk, read_file, replace_file
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, TopicPartition
from tierd.restore import (
    ChangelogProgress,
    ChangelogRestorer,
    CompositeSource,
    LocalChangelogs,
    LocalEnd,
    PartitionedSource,
    ProgressReporter,
    RemoteChangelogs,
    RemoteSegmentSource,
    RemoteTier,
    RestoredStreamsStore,
    RestoreError,
    RestoreTask,
    RocksStore,
    SqliteStore,
    StoreFailedError,
    StreamsTarget,
    delete_retention_ms_of,
)
from tierd.telemetry import MetricsFile, render_store_restore

_VALUES_SUFFIX: Final = ".values"
_PLAIN: Final = b"plain\n"
_TIMESTAMPED: Final = b"timestamped\n"

ReportStores = Callable[[Sequence[ChangelogProgress]], None]


class StoreKind(StrEnum):
    """Kind of the files of a store."""

    SQLITE = "sqlite"
    ROCKSDB = "rocksdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRestoreRequest:
    """Request to restore state stores.

    Attributes:
        names: the changelogs.
        into: directory of the stores; ``state.dir`` of the application for stores of Kafka Streams.
        streams: the stores of an application of Kafka Streams; None for stores of tierd's own kinds.
        is_timestamped: the stores keep the timestamp of each record before its value.
        is_compacted: of all changelogs, as a person gave it; None takes it from configuration and catalogue.
        reads_log_dirs: read also the log dirs of this host, which may have what is not in the tier yet.
        on_progress: is called with lines about the progress.
        metrics_file: file for the metrics of the restore; None for none. Not for stores of Kafka Streams.
    """

    names: tuple[TopicPartition, ...]
    into: Path
    kind: StoreKind
    is_timestamped: bool
    is_compacted: bool | None
    reads_log_dirs: bool
    source: SourceRequest
    on_progress: Callable[[str], None]
    streams: StreamsTarget | None = None
    metrics_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStore:
    """Plan of one store.

    Attributes:
        directory: the files of the store.
        start_offset: log start, inclusive.
        end_offset: exclusive: the end of the decided records.
        log_end_offset: exclusive end of all records; above ``end_offset`` while transactions are open.
        tier_bytes: size of the remote segments; what the local log or an earlier run has is not fetched.
    """

    partition: TopicPartition
    directory: Path
    start_offset: int
    end_offset: int
    log_end_offset: int
    tier_bytes: int
    is_compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOutcome:
    """Outcome of one store.

    Attributes:
        records: applied by this run.
        next_offset: the offset behind the last applied record.
        problem: reason why the store is not complete; None if it is.
    """

    planned: PlannedStore
    records: int
    next_offset: int
    problem: RestoreError | None


class StoreRestore:
    """Planned restore of state stores.

    Attributes:
        plans: one for each changelog.
    """

    def __init__(
        self, source: PartitionedSource, plans: Sequence[PlannedStore], request: StoreRestoreRequest, *, clock: Clock
    ) -> None:
        self.plans = tuple(plans)
        self._source = source
        self._request = request
        self._clock = clock

    async def run(self, report: ReportStores) -> list[StoreOutcome]:
        """Restore every store to its end, several at a time; a failure ends one store. Repeated, it goes on.

        Raises:
            StateDirError: a directory cannot be made.
            RefusedError: the application whose stores they are runs, or belongs to another user; or the file of the
                metrics cannot be written.
        """
        try:
            return await self._run(report)
        except OSError as error:
            raise StateDirError(
                f"{error.filename or self._request.into}: {error.strerror or error}",
                remedy="make room, or name a directory --into that this user may write",
            ) from error

    async def _run(self, report: ReportStores) -> list[StoreOutcome]:
        count = sum(planned.end_offset - planned.start_offset for planned in self.plans)
        await compile_kernels_for(count)
        if self._request.streams is not None:
            return await self._run_streams(self._request.streams)
        progress = ProgressReporter(clock=self._clock, on_progress=report)
        restorer = ChangelogRestorer(self._source, clock=self._clock, progress=progress)
        failed: dict[TopicPartition, RestoreError] = {}
        async with contextlib.AsyncExitStack() as stack:
            if (path := self._request.metrics_file) is not None:
                metrics = MetricsFile(path, lambda: render_store_restore(progress.use()), clock=self._clock)
                await stack.enter_async_context(metrics.kept())
            for planned in self.plans:
                try:
                    await self._register(planned, restorer, stack)
                except RestoreError as error:
                    failed[planned.partition] = error
            outcome = await restorer.run_until_completed()
            failed |= outcome.failed
            done = {each.partition: each for each in restorer.progress()}
            next_offsets = restorer.offsets()
        return [
            StoreOutcome(
                planned=planned,
                records=done[planned.partition].records if planned.partition in done else 0,
                next_offset=next_offsets.get(planned.partition, 0),
                problem=failed.get(planned.partition),
            )
            for planned in self.plans
        ]

    async def _run_streams(self, streams: StreamsTarget) -> list[StoreOutcome]:
        names = [planned.partition for planned in self.plans]
        done = await streams.restore(self._source, names, clock=self._clock, on_progress=self._request.on_progress)
        return [_streams_outcome(planned, done[planned.partition]) for planned in self.plans]

    async def _register(
        self, planned: PlannedStore, restorer: ChangelogRestorer, stack: contextlib.AsyncExitStack
    ) -> None:
        task_directory = planned.directory.parent
        await asyncio.to_thread(make_private_directory, task_directory)
        make = SqliteStore if self._request.kind is StoreKind.SQLITE else RocksStore
        store = make(str(planned.partition), timestamped=self._request.is_timestamped)
        await store.open(planned.directory)
        stack.push_async_callback(partial(store.close, clean=True))
        await asyncio.to_thread(_require_same_values, planned, is_timestamped=self._request.is_timestamped)
        task = RestoreTask(str(planned.partition), task_directory, {planned.partition: store}, exactly_once=True)
        restorer.register(planned.partition, task)


def _require_same_values(planned: PlannedStore, *, is_timestamped: bool) -> None:
    """Note the form of the values beside a store that is open; blocking.

    Raises:
        StoreFailedError: an earlier run has filled the store with values of the other form, or the note cannot be
            written.
    """
    note = planned.directory.with_name(f"{planned.directory.name}{_VALUES_SUFFIX}")
    wanted = _TIMESTAMPED if is_timestamped else _PLAIN
    try:
        found = read_file(OsDisk(), note)
    except FileNotFoundError:
        found = b""
    except OSError as error:
        raise StoreFailedError(str(planned.partition), f"{note}: {error.strerror}") from error
    if found == wanted:
        return
    if found:
        raise StoreFailedError(
            str(planned.partition),
            f"{planned.directory} has values {'without' if is_timestamped else 'with'} timestamps, by an earlier run",
            remedy=f"run it {'without' if is_timestamped else 'with'} --timestamped, or name another --into",
        )
    try:
        replace_file(OsDisk(), note, wanted)
    except OSError as error:
        raise StoreFailedError(str(planned.partition), f"{note}: {error.strerror}") from error


@contextlib.asynccontextmanager
async def store_restore(deployment: Deployment, request: StoreRestoreRequest) -> AsyncIterator[StoreRestore]:
    """Open the tier, and plan the stores; nothing is written. Neither a broker nor a daemon is needed.

    Raises:
        UnknownPartitionError: the tier has no changelog of a name.
        RefusedError: log dirs are to be read of a topic that may be compacted or not, or the directory of the stores
            is in a log dir.
        RestoreError: a changelog cannot be read.
        TierError: a store cannot be opened or read.
    """
    await asyncio.to_thread(deployment.require_outside_log_dirs, request.into)
    clock = SystemClock()
    async with restore_source(deployment, request.source, clock=clock, on_progress=request.on_progress) as source:
        partitions = await source.partitions(request.names)
        views = {each: await source.view(each) for each in partitions}
        retention = await _delete_retention(deployment, source, views, request)
        changelogs = _open_source(deployment, source, partitions, retention, request)
        try:
            plans = [await _planned(changelogs, view, retention, request) for view in views.values()]
            yield StoreRestore(changelogs, plans, request, clock=clock)
        finally:
            await changelogs.close()


def _open_source(
    deployment: Deployment,
    source: RestoreSource,
    partitions: Sequence[TopicIdPartition],
    retention: Mapping[str, int | None],
    request: StoreRestoreRequest,
) -> PartitionedSource:
    storage = source.stored.segments

    async def is_rewritten(metadata: RemoteLogSegmentMetadata) -> bool:
        return bool((await storage.read_manifest(metadata)).replaces)

    tier = RemoteTier(load_view=source.view, storage=storage, is_rewritten=is_rewritten)
    named = {each.topic_partition: each for each in partitions}
    if not request.reads_log_dirs:
        return RemoteSegmentSource(named, tier, delete_retention=retention.get, is_continued=False)

    def is_compacted(topic: str) -> bool:
        return retention.get(topic) is not None

    log_dirs = [log_dir.path for log_dir in deployment.config.log_dirs]
    return CompositeSource(
        LocalChangelogs(log_dirs, is_compacted=is_compacted, end=LocalEnd.HIGH_WATERMARK),
        RemoteChangelogs(named, tier, is_compacted=is_compacted),
        delete_retention=retention.get,
        is_continued=False,
    )


async def _delete_retention(
    deployment: Deployment,
    source: RestoreSource,
    views: Mapping[TopicIdPartition, PartitionView],
    request: StoreRestoreRequest,
) -> dict[str, int | None]:
    """Return ``delete.retention.ms`` of the compacted topics, and None for the other topics."""
    catalogue = await read_catalogue(source, list(views), at_ms=None)
    found: dict[str, int | None] = {}
    for partition, view in views.items():
        settings = catalogue.settings(partition.topic_id)
        policy = deployment.config.topics.for_topic(partition.topic).cleanup_policy
        known = topic_facts(policy, settings, retention_ms=None, is_cleaned=view.compacted_to is not None)
        is_compacted = known.is_compacted if request.is_compacted is None else request.is_compacted
        if is_compacted is None and request.reads_log_dirs:
            raise RefusedError(
                f"{partition}: tierd does not know if the topic is compacted; in a compacted topic, log dir and tier "
                "must not be mixed at any place",
                remedy="give --compacted or --not-compacted",
            )
        found[partition.topic] = delete_retention_ms_of(settings) if is_compacted else None
    return found


async def _planned(
    changelogs: PartitionedSource,
    view: PartitionView,
    retention: Mapping[str, int | None],
    request: StoreRestoreRequest,
) -> PlannedStore:
    name = view.partition.topic_partition
    own = request.into / str(name) / request.kind.value
    bounds = await changelogs.bounds(name)
    finished = (each for each in view.list() if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    return PlannedStore(
        partition=name,
        directory=request.streams.directory(name) if request.streams is not None else own,
        start_offset=bounds.earliest_offset,
        end_offset=max(bounds.stable_offset, bounds.earliest_offset),
        log_end_offset=bounds.end_offset,
        tier_bytes=sum(each.size_bytes for each in finished),
        is_compacted=retention[name.topic] is not None,
    )


def _streams_outcome(planned: PlannedStore, done: RestoredStreamsStore | RestoreError) -> StoreOutcome:
    if isinstance(done, RestoreError):
        return StoreOutcome(planned=planned, records=0, next_offset=0, problem=done)
    next_offset = 0 if done.last_offset is None else done.last_offset + 1
    return StoreOutcome(planned=planned, records=done.record_count, next_offset=next_offset, problem=None)
