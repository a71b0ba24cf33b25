"""Synchronous access to the tier, for Spark's driver and workers: TierAccess is pickled, OpenTier does the calls."""

import concurrent.futures
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from tierd.config import OBJECT_STORE, MetadataSettings, RemoteSettings, TierdConfig
from tierd.errors import RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import broker_identity, read_identities
from tierd.loop_thread import LoopThread
from tierd.metadata import (
    KeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    list_partitions,
    metadata_keys,
    open_metadata,
    read_partition,
)
from tierd.model import ByteRange, IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import (
    ObjectStoreCall,
    SegmentManifest,
    SegmentStorage,
    open_object_store,
    open_transform,
    segment_storages,
)
from tierd.tasks import together

T = TypeVar("T")

PIECE_BYTES: Final = 4 << 20
AHEAD: Final = 2  # pieces under way besides the one in use: more gained nothing with 4 requests at a time
_AT_ONCE: Final = 16  # small objects asked for together
_PLUGIN: Final = "plugin"
_SECTIONS: Final = (*OBJECT_STORE.built_in, _PLUGIN)
_CALL_TIMEOUT_S: Final = 900.0  # the store has deadlines and repetitions of its own; this one ends what they miss


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAccess:
    """Settings and identity that open one cluster's tier. Picklable; a pickle has the secrets, ``repr`` hides them.

    Attributes:
        metadata: None for a task, which reads and stages segments and asks no metadata.
        sqlite_path: of the sqlite metadata backend; only a host that has the file sees what is in it.
        log_dirs: of the host that the settings are for.
        broker_id: recorded in staged segments.
    """

    remote: RemoteSettings
    metadata: MetadataSettings | None
    sqlite_path: Path
    log_dirs: tuple[Path, ...]
    cluster_id: str
    broker_id: int

    @classmethod
    def from_config(cls, config: TierdConfig, config_file: Path) -> Self:
        """Take the settings; the log dirs are read only if the configuration lacks cluster or node id. Blocking.

        Raises:
            ConfigError: cluster or node are not known.
            CheckpointError: a ``meta.properties`` cannot be understood.
            LogDirOfflineError: no log dir can be read, and the configuration lacks cluster or node id.
        """
        log_dirs = tuple(log_dir.path for log_dir in config.log_dirs)
        is_configured = config.cluster_id is not None and config.node_id is not None
        identity = broker_identity(
            config_file,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            found={} if is_configured else read_identities(log_dirs),
        )
        return cls(
            remote=config.remote,
            metadata=config.metadata,
            sqlite_path=config.sqlite_path,
            log_dirs=log_dirs,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
        )

    def for_tasks(self) -> Self:
        """Return what tasks need of this: the object store in use and its key ring.

        The password of the metadata store, and the sections of stores that are not in use, stay where they are.
        """
        used = self.remote.backend if self.remote.backend in OBJECT_STORE.built_in else _PLUGIN
        unused: dict[str, None] = {name: None for name in _SECTIONS if name != used}
        return replace(self, metadata=None, remote=self.remote.model_copy(update=unused))

    @contextlib.contextmanager
    def open(self) -> "Iterator[OpenTier]":
        """Open the tier; nothing is connected before the first call. Closed, nothing of it is left running."""
        with contextlib.ExitStack() as stack:
            loop = stack.enter_context(LoopThread("tierd-access"))
            tier = OpenTier(self, loop)
            stack.callback(tier.close)
            yield tier


class OpenTier:
    """Open tier that reads and stages segments, one call at a time; ``pieces`` reads ahead. For one thread."""

    def __init__(self, access: TierAccess, loop: LoopThread) -> None:
        self._access = access
        self._loop = loop
        self._transform = open_transform(access.remote)
        self._store = open_object_store(access.remote, on_call=self._count)
        self._storage: SegmentStorage = segment_storages(
            access.remote,
            self._store,
            self._transform,
            cluster_id=access.cluster_id,
            broker_id=access.broker_id,
        )()
        self._rows: tuple[KeyValueStore, MetadataKeyFactory] | None = None
        self._fetched_bytes = 0

    @property
    def fetched_bytes(self) -> int:
        """Return the bytes fetched from the object store so far: logs, indexes and manifests."""
        return self._fetched_bytes

    def partitions(self) -> list[TopicIdPartition]:
        """Return every partition that the metadata knows.

        Raises:
            MetadataError: the metadata store is damaged, or does not answer.
        """
        return self._call(list_partitions(*self._metadata()))

    def view(self, partition: TopicIdPartition) -> PartitionView:
        """Return the partition's remote segments as they are stored now.

        Raises:
            MetadataError: as ``partitions``.
        """
        return self._call(read_partition(*self._metadata(), partition))

    def read(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the log's bytes in ``byte_range``, clipped at its end.

        Raises:
            RemoteResourceNotFoundError: the segment's objects are not there.
            RemoteIntegrityError: the stored bytes have changed.
            RemoteStorageError: the store failed.
        """
        return self._call(self._storage.fetch_log_segment(metadata, byte_range))

    def read_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact of the segment, empty where it has none: most have no index of aborted transactions.

        Raises:
            As ``read``.
        """
        return self._call(self._index(metadata, index_type))

    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the segment's manifest.

        Raises:
            As ``read``.
        """
        return self._call(self._storage.read_manifest(metadata))

    def require_whole_log(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Raise unless the segment's ``.log`` object is there, with the size that the manifest says.

        Raises:
            As ``read``.
        """
        self._call(self._storage.require_whole_log(metadata))

    def manifests(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[SegmentManifest]:
        """Return the manifests of many segments; several are read at a time.

        Raises:
            As ``read``.
        """
        return self._several([partial(self._storage.read_manifest, metadata) for metadata in segments])

    def read_indexes(self, segments: Sequence[RemoteLogSegmentMetadata], index_type: IndexType) -> list[bytes]:
        """Return one artefact of many segments, each as ``read_index`` does; several are read at a time.

        Raises:
            As ``read``.
        """
        return self._several([partial(self._index, metadata, index_type) for metadata in segments])

    def pieces(
        self,
        metadata: RemoteLogSegmentMetadata,
        start: int = 0,
        end: int | None = None,
        *,
        piece_bytes: int = PIECE_BYTES,
        ahead: int = AHEAD,
    ) -> Generator[bytes, None, None]:
        """Yield the log's bytes of ``[start, end)`` in order, in pieces that end where stored chunks end.

        At most ``ahead + 1`` pieces are in memory or under way. A caller that stops early closes the iterator.

        Args:
            metadata: whose log.
            start: position of the first byte.
            end: exclusive; None: the end of the log.
            piece_bytes: at least so many bytes a piece, made up to whole chunks.
            ahead: pieces asked for before they are wanted.

        Raises:
            As ``read``.
        """
        end = metadata.size_bytes if end is None else min(end, metadata.size_bytes)
        if start >= end:
            return
        chunk = self.manifest(metadata).log.chunk_size_bytes
        step = -(-piece_bytes // chunk) * chunk
        begun: deque[concurrent.futures.Future[bytes]] = deque()
        at = start
        try:
            while at < end or begun:
                while at < end and len(begun) <= ahead:
                    next_at = min((at // step + 1) * step, end)
                    fetch = self._storage.fetch_log_segment(metadata, ByteRange(at, next_at - 1))
                    begun.append(self._loop.begin(fetch))
                    at = next_at
                yield _not_empty(self._loop.result(begun.popleft(), timeout_s=_CALL_TIMEOUT_S), metadata)
        finally:
            for fetch_under_way in begun:
                fetch_under_way.cancel()

    def stage(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, key_seed: bytes) -> SegmentManifest:
        """Store log and indexes of an output; its manifest is the leader's to write.

        Raises:
            RemoteConflictError: an object is there already, with other bytes.
            RemoteStorageError: the store failed.
        """
        return self._call(self._storage.stage_log_segment_data(metadata, data, key_seed=key_seed))

    def close(self) -> None:
        """Close the metadata store, the object store and the transform."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._transform.close)
            stack.callback(partial(self._close_store))
            if self._rows is not None:
                self._call(self._rows[0].close())

    def _close_store(self) -> None:
        self._call(self._store.close())

    def _metadata(self) -> tuple[KeyValueStore, MetadataKeyFactory]:
        if self._rows is None:
            access = self._access
            assert access.metadata is not None, "a task asks no metadata"
            keys = metadata_keys(access.metadata, access.cluster_id)
            opening = open_metadata(access.metadata, sqlite_path=access.sqlite_path, read_only=True)
            self._rows = self._call(opening), keys
        return self._rows

    async def _index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        if index_type is IndexType.TRANSACTION and metadata.txn_index_empty:
            return b""
        try:
            return await self._storage.fetch_index(metadata, index_type)
        except RemoteIndexAbsentError:
            return b""

    def _several(self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        works = {f"tier access {number}": call for number, call in enumerate(calls)}
        return self._call(together(works, at_once=_AT_ONCE)) if calls else []

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.call(work, timeout_s=_CALL_TIMEOUT_S)

    def _count(self, call: ObjectStoreCall) -> None:
        if call.operation == "get":
            self._fetched_bytes += call.size_bytes


def _not_empty(piece: bytes, metadata: RemoteLogSegmentMetadata) -> bytes:
    if not piece:
        raise RemoteIntegrityError(
            f"{metadata.segment}: the object ends before its metadata says",
            remedy=f"run tierd verify {metadata.segment.topic_id_partition}",
        )
    return piece
