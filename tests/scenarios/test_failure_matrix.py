"""Failure matrix (remote-tiering 7.9) and errors of readers (14.6), over real stores with scripted faults.

One of two partitions is hurt: no record is lost, no wrong byte is served, the other partition continues, and the hurt
one recovers by itself once the cause is gone. ``verify`` checks the result.

Elsewhere: latency, resets, black holes, lost replies, refusals and wrong credentials of a real S3 server in
``test_store_faults``; full disks in ``test_full_disk`` and ``remote/cache``; damaged caches in ``remote/cache`` and
``tiering/reading/test_index_cache``; a listing from the past in ``tiering/auditing/test_tier_audit``; full queues and
quotas in ``tiering/reading/test_fetch_service``; unknown outcomes of every write in
``metadata/leading/test_metadata_manager``.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.fakes.key_value_store import Fault
from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.transforms import ring, transform_named
from tests.scenarios.conftest import MakeInstallation
from tests.services.postgres import PostgresService, psql
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier, delete_segment, partition_of
from tierd.config import ExpireSettings
from tierd.errors import (
    BackendUnavailableError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageNotReadyError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.metadata import Batch, DeletePrefix, KeyValueStore, MetadataKeyFactory, Put, read_partition
from tierd.metadata.kv import SqliteKeyValueStore
from tierd.model import IsolationLevel, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import (
    Body,
    ForwardedCall,
    ForwardingObjectStore,
    ObjectKeyFactory,
    ObjectStore,
    SegmentStorage,
    Transform,
)
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.transform.transform import PLAIN
from tierd.tiering import AuditLimits, Finding, StoredTier, TierAudit, TieredLog, TopicPolicy

Answer = TypeVar("Answer")

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
HURT, SOUND = "hurt-0", "sound-0"
KEYS = MetadataKeyFactory(CLUSTER_ID)
DAY_S = 86_400.0


class FaultyRows(KeyValueStore):
    """Metadata store that fails for some batches, in one of the ways of a real one."""

    def __init__(self, inner: KeyValueStore) -> None:
        self._inner = inner
        self.faults: Callable[[Batch], Fault | None] = lambda _: None
        self.reads_fail = False

    async def get(self, key: str) -> bytes | None:
        self._require_readable()
        return await self._inner.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self._require_readable()
        return await self._inner.get_many(keys)

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        self._require_readable()
        return await self._inner.scan(prefix)

    async def apply(self, batch: Batch) -> None:
        match self.faults(batch):
            case Fault.FAIL:
                raise BackendUnavailableError("the store is away, for a test")
            case Fault.LOSE_ANSWER:
                await self._inner.apply(batch)
                raise OutcomeUnknownError("it was written and the answer lost, for a test")
            case Fault.DROP_REQUEST:
                raise OutcomeUnknownError("the request was lost, for a test")
            case _:
                await self._inner.apply(batch)

    async def close(self) -> None:
        await self._inner.close()

    def _require_readable(self) -> None:
        if self.reads_fail:
            raise BackendUnavailableError("the store is away, for a test")


class FaultyObjects(ForwardingObjectStore):
    """Object store that fails for some calls: ``fault`` raises for those."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.fault: Callable[[str, str], None] = lambda operation, key: None
        self.puts: list[str] = []

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[Answer]]) -> Answer:
        if call.operation == "put":
            self.puts.append(call.key)
        if call.operation in {"put", "get", "head", "delete"}:
            self.fault(call.operation, call.key)
        return await send()


class World:
    """Two partitions of two rolled segments each, over a real directory and a real SQLite file."""

    def __init__(self, tmp_path: Path, rows: KeyValueStore, transform: Transform = PLAIN) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka")
        self.paths = {}
        for topic in ("hurt", "sound"):
            writer = log_dir.add_partition(topic)
            writer.fill(rolled_segments=2, shape=SegmentShape())
            self.paths[f"{topic}-0"] = writer.path
        log_dir.write_checkpoints()
        self.objects = FaultyObjects(FilesystemObjectStore(tmp_path / "store"))
        self.rows = FaultyRows(rows)
        self.tier = Tier(tmp_path, [log_dir.path], store=self.objects, rows=self.rows)
        self.transform = transform
        self.policy = TopicPolicy()

    def session(self) -> Session:
        return self.tier.session(
            storage=lambda _: self.storage(),
            policies=lambda _: self.policy,
            expire=ExpireSettings.model_validate({"grace": "0s"}),
        )

    def storage(self) -> SegmentStorage:
        return SegmentStorage(
            self.objects, cluster_id=CLUSTER_ID, broker_id=BROKER_ID, chunk_size=1 << 20, transform=self.transform
        )

    def partition(self, name: str) -> TopicIdPartition:
        return partition_of(self.paths[name])

    def is_hurt(self, text: str) -> bool:
        """Return True if a key, of either store, belongs to the hurt partition."""
        return "/hurt-" in text or KEYS.partition_prefix(self.partition(HURT)) in text

    async def states(self, name: str = HURT) -> list[RemoteLogSegmentState]:
        view = await read_partition(self.rows, KEYS, self.partition(name))
        return [row.state for row in sorted(view.list(), key=lambda row: (row.start_offset, row.event_timestamp_ms))]

    async def key(self, suffix: str) -> str:
        """Return the key of an object of the first segment of the hurt partition."""
        return next(
            i.key for i in await self.objects.list_objects("") if self.is_hurt(i.key) and i.key.endswith(suffix)
        )

    async def findings(self) -> list[Finding]:
        async def tiered_log(partition: TopicIdPartition) -> TieredLog:
            view = await read_partition(self.rows, KEYS, partition)
            return TieredLog(partition, view, None, None)

        async def nothing() -> tuple[()]:
            return ()

        audit = TierAudit(
            StoredTier(
                objects=self.objects,
                segments=self.storage(),
                object_keys=ObjectKeyFactory("", CLUSTER_ID),
                rows=self.rows,
                row_keys=KEYS,
            ),
            tiered_log=tiered_log,
            clock=self.tier.clock,
            limits=AuditLimits(600),
            retained=nothing,
        )
        return [finding async for report in audit.run(deep=True) for finding in report.findings]

    async def records(self, session: Session, name: str) -> list[int]:
        return [record.offset for record in await session.read_all(self.paths[name])]

    def lose_local(self) -> None:
        """Delete copied local segments, as retention does."""
        for path in self.paths.values():
            for base_offset in (0, 8):
                delete_segment(path, base_offset)

    async def assert_recovers(self, session: Session) -> None:
        """Check that the next passes without the fault copy all segments, and leave no other object."""
        self.rows.faults, self.rows.reads_fail = (lambda _: None), False
        self.objects.fault = lambda operation, key: None
        for _ in range(3):
            outcomes = await session.copy_once()
            self.tier.clock.advance(DAY_S)
        assert [outcome.error for outcome in outcomes.values()] == [None, None]
        assert await self.findings() == []
        self.lose_local()
        for name in self.paths:
            assert session.finished(self.partition(name)) == [(0, 7), (8, 15)]
            assert await self.records(session, name) == list(range(20))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    rows = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
    yield World(tmp_path, rows)
    await rows.close()


def _written(batch: Batch) -> list[str]:
    return [write.key for write in batch.writes if not isinstance(write, DeletePrefix)]


def writes(batch: Batch, state: RemoteLogSegmentState) -> bool:
    """Return True if the batch moves a segment into that state."""
    segments = [write for write in batch.writes if isinstance(write, Put) and "/seg/" in write.key]
    # A value is JSON behind a byte with the version of the format.
    return any(json.loads(write.value[1:])["state"] == state.value for write in segments)


# ------------------------------------------------------------ 7.9, copying


@dataclass(frozen=True)
class Row:
    """Row of the matrix: the failing step, the fault, the state in between, and the end of the pass."""

    step: RemoteLogSegmentState
    fault: Fault
    left: tuple[RemoteLogSegmentState, ...]
    error: type[TierError] | None
    uploads: bool

    def __str__(self) -> str:
        return f"{self.step.name.lower()}-{self.fault.name.lower()}"


COPYING = [
    Row(STARTED, Fault.FAIL, (), BackendUnavailableError, uploads=False),
    Row(STARTED, Fault.LOSE_ANSWER, (FINISHED, FINISHED), None, uploads=True),  # confirmed after a reload
    Row(STARTED, Fault.DROP_REQUEST, (), OutcomeUnknownError, uploads=False),
    Row(FINISHED, Fault.FAIL, (STARTED,), BackendUnavailableError, uploads=True),
    Row(FINISHED, Fault.LOSE_ANSWER, (FINISHED, FINISHED), None, uploads=True),
    Row(FINISHED, Fault.DROP_REQUEST, (STARTED,), OutcomeUnknownError, uploads=True),
]


@pytest.mark.parametrize("row", COPYING, ids=str)
async def test_failed_metadata_write_of_a_copy_is_recovered(world: World, row: Row) -> None:
    hurt = KEYS.partition_prefix(world.partition(HURT))

    def faults(batch: Batch) -> Fault | None:
        is_ours = any(key.startswith(hurt) for key in _written(batch))
        return row.fault if is_ours and writes(batch, row.step) else None

    world.rows.faults = faults
    session = world.session()
    outcomes = await session.copy_once()
    assert isinstance(outcomes[HURT].error, row.error) if row.error else outcomes[HURT].error is None
    assert outcomes[SOUND].error is None
    assert session.finished(world.partition(SOUND)) == [(0, 7), (8, 15)]
    world.rows.faults = lambda _: None
    assert tuple(await world.states()) == row.left
    assert any(world.is_hurt(key) for key in world.objects.puts) == row.uploads
    await world.assert_recovers(session)


async def test_failed_claim_copies_no_segment_and_keeps_local_data(world: World) -> None:
    row_key = KEYS.row(world.partition(HURT))
    world.rows.faults = lambda batch: Fault.FAIL if row_key in _written(batch) else None
    session = world.session()
    outcomes = await session.copy_once()
    assert isinstance(outcomes[HURT].error, BackendUnavailableError)
    assert outcomes[SOUND].error is None
    assert not any(world.is_hurt(key) for key in world.objects.puts)
    with pytest.raises(RemoteStorageNotReadyError):  # 14.6: metadata not ready is retriable
        session.metadata.view(world.partition(HURT))
    await world.assert_recovers(session)


async def test_unreachable_metadata_store_stops_copies_until_it_answers(world: World) -> None:
    world.rows.reads_fail = True
    world.rows.faults = lambda _: Fault.FAIL
    session = world.session()
    for outcome in (await session.copy_once()).values():
        assert isinstance(outcome.error, BackendUnavailableError)
    assert world.objects.puts == []
    await world.assert_recovers(session)


# ------------------------------------------------------------ 7.9, deleting


@pytest.mark.parametrize("step", [DELETING, DELETED], ids=lambda state: state.name.lower())
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST], ids=lambda fault: fault.name)
async def test_failed_metadata_write_of_a_deletion_is_recovered(
    world: World, step: RemoteLogSegmentState, fault: Fault
) -> None:
    session = world.session()
    await session.copy_once()
    world.policy = TopicPolicy(retention_ms=1)
    world.tier.clock.advance(DAY_S)
    hurt = KEYS.partition_prefix(world.partition(HURT))

    def faults(batch: Batch) -> Fault | None:
        is_ours = any(key.startswith(hurt) for key in _written(batch))
        return fault if is_ours and writes(batch, step) else None

    world.rows.faults = faults
    for _ in range(2):
        await session.tiering.removals.expire_here(None)
    world.rows.faults = lambda _: None
    assert await world.states(SOUND) == []
    if step is DELETING and fault is not Fault.LOSE_ANSWER:
        assert await world.states() == [FINISHED, FINISHED]  # no object is deleted before the row is updated
        assert len([key for key in await keys_of(world) if key.endswith(".log")]) == 2
    await assert_expires(world, session)


async def test_object_store_that_refuses_deletions_keeps_the_rows(world: World) -> None:
    session = world.session()
    await session.copy_once()
    world.policy = TopicPolicy(retention_ms=1)
    world.tier.clock.advance(DAY_S)

    def fault(operation: str, key: str) -> None:
        if operation == "delete" and world.is_hurt(key):
            raise RetriableRemoteStorageError("SlowDown, for a test")

    world.objects.fault = fault
    for _ in range(2):
        await session.tiering.removals.expire_here(None)
    assert await world.states() == [DELETING, DELETING]
    assert await world.states(SOUND) == []
    await assert_expires(world, session)


async def keys_of(world: World) -> list[str]:
    """Return the keys of the hurt partition's segments; the record of its log start stays as long as the partition."""
    keys = [info.key for info in await world.objects.list_objects("") if world.is_hurt(info.key)]
    return [key for key in keys if not key.endswith("/log-start.json")]


async def assert_expires(world: World, session: Session) -> None:
    world.objects.fault = lambda operation, key: None
    for _ in range(3):
        world.tier.clock.advance(DAY_S)
        await session.tiering.removals.expire_here(None)
    assert await world.states() == []
    assert await keys_of(world) == []
    assert await world.findings() == []


# ------------------------------------------------------------ the object store, copying


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
@pytest.mark.parametrize(
    "error",
    [
        RetriableRemoteStorageError("503 SlowDown, for a test"),
        RetriableRemoteStorageError("500 InternalError, for a test"),
        RemoteStorageError("something new, for a test"),
        OSError(28, "No space left on device"),
    ],
    ids=["throttled", "5xx", "unknown", "full"],
)
async def test_failed_upload_leaves_no_object_and_is_repeated(world: World, suffix: str, error: Exception) -> None:
    def fault(operation: str, key: str) -> None:
        if operation == "put" and world.is_hurt(key) and key.endswith(suffix):
            raise error

    world.objects.fault = fault
    session = world.session()
    outcomes = await session.copy_once()
    assert isinstance(outcomes[HURT].error, RemoteStorageError)
    assert outcomes[SOUND].error is None
    assert await keys_of(world) == []
    await world.assert_recovers(session)


async def test_half_written_object_is_not_taken_for_a_whole_one(world: World) -> None:
    async def half(key: str) -> None:
        await FilesystemObjectStore(world.tier.hold_dir.parent / "store").put(key, b"half of it")

    pending: list[str] = []
    original = world.objects.put

    async def put(key: str, body: Body) -> None:
        if world.is_hurt(key) and key.endswith(".log") and not pending:
            pending.append(key)
            await half(key)  # of another writer, or of a store that shows unfinished writes
        await original(key, body)

    world.objects.put = put  # type: ignore[method-assign]  # the fault of this test alone
    session = world.session()
    outcomes = await session.copy_once()
    assert pending, "half an object was in the way"
    assert [outcomes[HURT].error, outcomes[SOUND].error] == [None, None]
    stored = await world.objects.get(pending[0])
    assert stored != b"half of it"
    await world.assert_recovers(session)


# ------------------------------------------------------------ 14.6, reading


async def cut(world: World, suffix: str) -> None:
    key = await world.key(suffix)
    content = await world.objects.get(key)
    await world.objects.delete(key)
    await world.objects.put(key, content[: len(content) // 2])


async def changed(world: World, suffix: str) -> None:
    key = await world.key(suffix)
    content = await world.objects.get(key)
    await world.objects.replace(key, content[:70] + bytes([content[70] ^ 1]) + content[71:], previous=content)


async def gone(world: World, suffix: str) -> None:
    await world.objects.delete(await world.key(suffix))


async def with_fields(world: World, **fields: object) -> None:
    key = await world.key(".manifest")
    content = await world.objects.get(key)
    await world.objects.replace(key, json.dumps(json.loads(content) | fields).encode(), previous=content)


async def slow_down(world: World, suffix: str) -> None:
    def fault(operation: str, key: str) -> None:
        if operation == "get" and world.is_hurt(key) and key.endswith(suffix):
            raise RetriableRemoteStorageError("503 SlowDown, for a test")

    world.objects.fault = fault


@pytest.mark.parametrize(
    ("hurt", "error"),
    [
        (lambda world: gone(world, ".log"), RemoteResourceNotFoundError),
        (lambda world: gone(world, ".manifest"), RemoteResourceNotFoundError),
        (lambda world: cut(world, ".log"), RemoteIntegrityError),
        (lambda world: changed(world, ".log"), RemoteIntegrityError),
        (lambda world: cut(world, ".manifest"), RemoteIntegrityError),
        (lambda world: with_fields(world, segment_id="AAAAAAAAAAAAAAAAAAAAAA"), RemoteIntegrityError),
        (lambda world: with_fields(world, format_version=2), RemoteFormatError),
        (lambda world: slow_down(world, ".log"), RetriableRemoteStorageError),
        (lambda world: slow_down(world, ".manifest"), RetriableRemoteStorageError),
    ],
    ids=[
        "log gone",
        "manifest gone",
        "log cut",
        "log changed",
        "manifest cut",
        "manifest of another segment",
        "unknown format version",
        "log throttled",
        "manifest throttled",
    ],
)
async def test_readers_get_the_error_class_of_the_cause_and_no_wrong_bytes(
    world: World, hurt: Callable[[World], "AsyncIterator[None]"], error: type[TierError]
) -> None:
    session = world.session()
    await session.copy_once()
    world.lose_local()
    sound = await world.records(session, SOUND)
    await hurt(world)  # type: ignore[misc]  # one of the functions above
    fresh = world.session()  # a process without cached state
    for name in world.paths:
        await fresh.metadata.become_leader(world.partition(name), 0)
    with pytest.raises(error) as caught:
        await fresh.reader(world.paths[HURT]).read(5, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
    assert not isinstance(caught.value, OffsetOutOfRangeError)  # consumers would reset
    assert await world.records(fresh, SOUND) == sound == list(range(20))
    world.objects.fault = lambda operation, key: None
    if caught.value.retriable:
        assert await world.records(fresh, HURT) == sound
    else:
        assert [finding.where for finding in await world.findings()]


async def test_offset_without_a_segment_is_out_of_range(world: World) -> None:
    session = world.session()
    await session.copy_once()
    with pytest.raises(OffsetOutOfRangeError):
        await session.reader(world.paths[HURT]).read(99, max_bytes=1 << 20, isolation=IsolationLevel.READ_UNCOMMITTED)


async def test_key_missing_from_the_ring_is_named_and_reads_succeed_when_it_is_restored(tmp_path: Path) -> None:
    rows = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
    world = World(tmp_path, rows, transform_named("aes"))
    await world.session().copy_once()
    world.lose_local()
    whole, world.transform = world.transform, Transform(encrypts=True, ring=ring("new", "new"))
    session = world.session()
    await session.metadata.become_leader(world.partition(HURT), 0)
    with pytest.raises(RemoteKeyMissingError, match="'old'"):
        await world.records(session, HURT)
    world.transform = whole
    session = world.session()
    await session.metadata.become_leader(world.partition(HURT), 0)
    assert await world.records(session, HURT) == list(range(20))
    await rows.close()


# ------------------------------------------------------------ a metadata server that fails over


@pytest.mark.service("postgres")
def test_daemon_waits_for_a_database_that_is_read_only_and_then_down(
    tmp_path: Path, make_installation: MakeInstallation, postgres_service: PostgresService, postgres_dsn: str
) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=1, shape=SegmentShape())
    log_dir.write_checkpoints()
    tierd = make_installation(
        [log_dir.path],
        settings={"metadata": {"backend": "postgres", "timeout": "2s", "postgres": {"dsn": postgres_dsn}}},
    )

    def roll() -> None:
        writer.roll()
        writer.fill(rolled_segments=0, shape=SegmentShape())
        log_dir.write_checkpoints()

    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": 7})
        name = postgres_dsn.rpartition("/")[2]
        psql(postgres_service.dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        drop = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        psql(postgres_service.dsn, drop)
        before = (daemon.partition("orders-0") or {})["copied_through"]
        roll()
        daemon.wait_until(
            lambda: (daemon.partition("orders-0") or {})["last_error"], what="the read-only database to be named"
        )
        assert before == 7
        assert daemon.is_alive()
        psql(postgres_service.dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        psql(postgres_service.dsn, drop)
        postgres_service.services.kill("postgres")
        postgres_service.services.start("postgres")
        daemon.wait_until(lambda: tierd.frontier("orders-0") > before, what="copies to go on", deadline_s=60.0)
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
