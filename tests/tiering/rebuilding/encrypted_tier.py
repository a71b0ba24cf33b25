"""Encrypted tier whose metadata is lost and rebuilt from its bucket."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.transforms import transform_named
from tests.tiering.auditing.audited import KEYS, OBJECT_KEYS, Audited
from tests.tiering.rebuilding.intruder import Intruder
from tests.tiering.setups import Session
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, PartitionView, read_partition
from tierd.model import IsolationLevel, RemoteLogSegmentState
from tierd.tiering import FetchTask, MetadataRebuild, RebuildReport, SilentRecorder, StoredTier, TieredLog

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
GRACE_S = 3600


class EncryptedTier(Audited):
    """Two encrypted segments of 8 records, whose metadata can be lost and rebuilt."""

    def __init__(self, folder: Path, *, store: type[MemoryObjectStore] = MemoryObjectStore) -> None:
        super().__init__(folder, transform_named("aes"), store=store)
        assert isinstance(self.tier.store, MemoryObjectStore)
        self.intruder = Intruder(folder, self.tier.store, self.partition)

    async def copy(self) -> None:
        await self.session.copy_once()
        self.ids = [row.segment.id for row in await self.rows()]

    async def rebuilt(self, *, accepts_unauthenticated: bool = False) -> RebuildReport:
        """Lose the metadata and rebuild it."""
        self.tier.rows = MemoryKeyValueStore()
        rebuild = self.rebuild_of(self.tier.rows, accepts_unauthenticated=accepts_unauthenticated)
        return await rebuild.run()

    def rebuild_of(self, rows: KeyValueStore, *, accepts_unauthenticated: bool) -> MetadataRebuild:
        return MetadataRebuild(
            StoredTier(
                objects=self.tier.store,
                segments=self.storage(),
                object_keys=OBJECT_KEYS,
                rows=rows,
                row_keys=KEYS,
            ),
            session_id=UUID(int=0xABC),
            grace_ends_ms=self.tier.clock.now_ms() + GRACE_S * 1000,
            on_progress=lambda _: None,
            accepts_unauthenticated=accepts_unauthenticated,
        )

    async def view(self) -> PartitionView:
        return await read_partition(self.tier.rows, KEYS, self.partition)

    async def values(self) -> Mapping[int, bytes | None]:
        """Return the values of all records of the tier by their offsets, as a host without a replica reads them."""
        log = TieredLog(self.partition, await self.view(), None, None)

        async def answer() -> TieredLog:
            return log

        reader = FetchTask(answer, remote=self.storage(), recorder=SilentRecorder(), prefetch_bytes=1 << 20)
        return {r.offset: r.value async for r in reader.records(None, None, IsolationLevel.READ_UNCOMMITTED)}

    async def expire(self) -> None:
        """Expire as the daemon of the next leader does: one pass, and another after the grace."""
        session: Session = self.tier.session(storage=self._transforming)
        for _ in range(2):
            await session.manager.copy_once()
            for outcome in await session.tiering.removals.expire_here(None):
                assert outcome.error is None
            self.tier.clock.advance(GRACE_S / 2)
