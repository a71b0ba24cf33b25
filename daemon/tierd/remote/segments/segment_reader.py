"""SegmentReader: a segment's objects back to its bytes. All is checked but a part of a plain chunk."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tierd.errors import RemoteIndexAbsentError, RemoteIntegrityError
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata
from tierd.open_file import OpenFile
from tierd.remote.chunks import ByteView
from tierd.remote.object_keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, ObjectKeyFactory, must_be_encrypted
from tierd.remote.object_limits import MANIFEST, early_indexes, read_whole
from tierd.remote.object_store import ObjectInfo, ObjectStore
from tierd.remote.segments.early_reads import EarlyReads
from tierd.remote.segments.open_segment import OpenSegment, opened
from tierd.remote.transform.chunk_layout import ChunkLayout
from tierd.remote.transform.transform import Transform
from tierd.tasks import drop_task, together, wait_all

T = TypeVar("T")

_SEGMENTS_KEPT = 64
_KEPT_BYTES = 1 << 20  # of a manifest; that of 2 GiB in chunks of 1 MiB has a quarter of it
_GUESSED_BYTES = 8 << 20  # a longer read saves little by a guess, and wastes much by a wrong one
_READS_AHEAD = 2  # reads of one size from a file before the next file is wanted
_RUN_BYTES = 16 << 20
"""Neighbouring chunks are fetched with one request of at most this size, or one by one at the same time."""


class CachedBytes(NamedTuple):
    """Bytes of a log in a file of the cache, whose content was checked a short time ago."""

    file: OpenFile
    position: int
    size_bytes: int


class RangeCache(Protocol):
    """Cache of ranges of objects. Each range that is asked for is one stored chunk."""

    async def get(self, key: str, byte_range: ByteRange) -> bytes:
        """Return the bytes of ``byte_range``, from the cache or from the store."""

    async def open_checked(self, key: str, byte_range: ByteRange, *, crc32c: int, used_bytes: int) -> OpenFile | None:
        """Return a file that begins with the bytes of ``byte_range``, checked a short time ago; None: ``get`` them."""

    def check_ahead(self, key: str, byte_range: ByteRange, *, crc32c: int) -> None:
        """Begin the check of a file that will probably be asked for."""

    async def drop(self, key: str, byte_range: ByteRange) -> None:
        """Forget the bytes of ``byte_range``, which are damaged or are no chunk: the next reader asks the store."""


class SegmentReader:
    """Reader of the segments of one cluster.

    At the first read of a segment its bytes are asked for together with its manifest, if the last segment was plain and
    this one probably is. When the manifest is there, the bytes are used or asked for anew.

    Args:
        store: where manifests and indexes are.
        cluster_id: the cluster to which encrypted segments must be bound.
        transform: gives the key ring, and the threads.
        cache: reads logs instead of the store. The cache is asked for single chunks, of plain logs too; without a cache
            the store is asked for neighbouring chunks at once, and for the exact range of a plain log.
        plain_chunk_size: of segments that are stored now; None where they are transformed.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        cluster_id: str,
        transform: Transform,
        cache: RangeCache | None = None,
        plain_chunk_size: int | None = None,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._transform = transform
        self._cache = cache
        self._read_range = store.get if cache is None else cache.get
        self._open: OrderedDict[str, OpenSegment] = OrderedDict()
        self._opening: SharedCalls[OpenSegment] = SharedCalls()
        self._early: SharedCalls[bytes] = SharedCalls()
        self._expected_chunk_size = plain_chunk_size  # of the next segment; None: it is probably transformed

    async def open(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata) -> OpenSegment:
        """Return the segment's manifest and the tools to read by it. The last few manifests are kept in memory.

        Raises:
            RemoteResourceNotFoundError: there is no manifest: the segment was not completely stored, or is deleted.
            RemoteIntegrityError: the manifest is damaged, was changed, or describes another segment.
            RemoteKeyMissingError: the segment is encrypted, and the ring lacks the key.
        """
        key = keys.segment(metadata, MANIFEST_SUFFIX)
        found = self._open.get(key)
        if found is None:
            found = await self._opening.ask(key, lambda: self._load(key, metadata))
        else:
            self._open.move_to_end(key)
        found.manifest.require_describes(metadata, key=key)
        return found

    def forget(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata) -> None:
        """Forget the manifest: the segment is deleted."""
        self._open.pop(keys.segment(metadata, MANIFEST_SUFFIX), None)

    async def require_log(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata) -> ObjectInfo:
        """Return what the store says of the log; raise unless manifest and log are there.

        The store is asked: a manifest kept in memory proves nothing.

        Raises:
            As ``open``, and RemoteResourceNotFoundError: there is no log.
        """
        await self.open(keys, metadata)
        return await self._store.head(keys.segment(metadata, LOG_SUFFIX))

    async def read_log(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange
    ) -> bytes:
        """Return the log's bytes in ``byte_range``, which lies within it. Every whole chunk that is read is checked.

        Raises:
            RemoteResourceNotFoundError: an object is not there.
            RemoteIntegrityError: the stored bytes have changed; key and chunk are named.
        """
        key = keys.segment(metadata, LOG_SUFFIX)
        async with EarlyReads(self._read_range, key, self._guessed(keys, metadata, byte_range)) as reads:
            segment = await self.open(keys, metadata)
            if not segment.manifest.is_transformed and self._cache is None:
                return await self._read_plain(reads, key, segment, byte_range)
            return await self._read_aligned(reads, key, segment, byte_range)

    async def open_cached(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange
    ) -> list[CachedBytes] | None:
        """Return the places of ``byte_range``, which lies within the log, in files of the cache; the places adjoin.

        The content of these files was compared with the checksums of the manifest a short time ago.

        Returns:
            None where ``read_log`` has to return the bytes: there is no cache, it has not all of them on disk, the
            segment is transformed, or its manifest is not in memory.
        """
        manifest_key = keys.segment(metadata, MANIFEST_SUFFIX)
        segment = self._open.get(manifest_key)
        if self._cache is None or segment is None or segment.manifest.is_transformed:
            return None
        self._open.move_to_end(manifest_key)
        key, layout = keys.segment(metadata, LOG_SUFFIX), segment.layout
        segment.manifest.require_describes(metadata, key=key)
        found: list[CachedBytes] = []
        chunks = layout.chunks_of(byte_range)
        for number in chunks:
            chunk = layout.original_range(number)  # plain: the same range in the object
            start, end = max(byte_range.start, chunk.start), min(byte_range.end, chunk.end) + 1
            file = await self._cache.open_checked(
                key, chunk, crc32c=layout.chunks[number].crc32c, used_bytes=end - start
            )
            if file is None:
                return None
            found.append(CachedBytes(file, start - chunk.start, end - start))
        if chunks.stop < len(layout.chunks):
            following = layout.original_range(chunks.stop)
            if byte_range.end + _READS_AHEAD * byte_range.size >= following.start:
                self._cache.check_ahead(key, following, crc32c=layout.chunks[chunks.stop].crc32c)
        return found

    async def _read_aligned(self, reads: EarlyReads, key: str, segment: OpenSegment, byte_range: ByteRange) -> bytes:
        layout = segment.layout
        pieces: list[ByteView] = []
        for run in layout.runs(layout.chunks_of(byte_range), _RUN_BYTES):
            for number, content in zip(run, await self._read_chunks(reads, key, segment, run), strict=True):
                start = layout.original_range(number).start
                first, last = max(byte_range.start - start, 0), min(byte_range.end - start, len(content) - 1)
                is_whole = first == 0 and last == len(content) - 1
                pieces.append(content if is_whole else memoryview(content)[first : last + 1])
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    async def read_index(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> bytes:
        """Return one artefact, checked.

        Raises:
            RemoteIndexAbsentError: the segment never had it; normal for ``TRANSACTION``.
            RemoteResourceNotFoundError: the object, or the manifest, is not there.
            RemoteIntegrityError: its bytes are not those that were stored.
        """
        key = keys.segment(metadata, INDEXES_SUFFIX)
        is_open = keys.segment(metadata, MANIFEST_SUFFIX) in self._open
        early = early_indexes(metadata.size_bytes)
        async with EarlyReads(self._read_early, key, () if is_open else (early,)) as reads:
            segment = await self.open(keys, metadata)
            artefact = segment.manifest.index(index_type)
            if artefact is None:
                raise RemoteIndexAbsentError(f"{key}: the segment has no {index_type.value} index")
            stored = b""
            end = artefact.position + artefact.size_bytes
            if artefact.size_bytes and (is_open or end > early.size):
                stored = await self._store.get(key, ByteRange.of_size(artefact.position, artefact.size_bytes))
            elif artefact.size_bytes:
                stored = (await reads.read(early))[artefact.position : end]
        return segment.decode_index(index_type, artefact, stored, key=key)

    async def _load(self, key: str, metadata: RemoteLogSegmentMetadata) -> OpenSegment:
        content = await read_whole(self._store, key, MANIFEST)
        found = opened(content, metadata, self._cluster_id, self._transform.ring, key=key)
        self._expected_chunk_size = None if found.manifest.is_transformed else found.layout.chunk_size
        if len(content) > _KEPT_BYTES:
            return found
        self._open[key] = found
        if len(self._open) > _SEGMENTS_KEPT:
            self._open.popitem(last=False)
        return found

    def _guessed(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange
    ) -> list[ByteRange]:
        """Return the ranges that a read will probably need after the manifest; none where the manifest is open."""
        size = self._expected_chunk_size
        if size is None or keys.segment(metadata, MANIFEST_SUFFIX) in self._open:
            return []
        if must_be_encrypted(metadata.custom_metadata) or byte_range.size > _GUESSED_BYTES:
            return []
        if self._cache is None:
            return [byte_range]
        expected = ChunkLayout(metadata.size_bytes, size, ())
        return [expected.original_range(number) for number in expected.chunks_of(byte_range)]

    async def _read_early(self, key: str, byte_range: ByteRange) -> bytes:
        return await self._early.ask(key, lambda: self._store.get(key, byte_range))

    async def _read_plain(self, reads: EarlyReads, key: str, segment: OpenSegment, byte_range: ByteRange) -> bytes:
        content = await reads.read(byte_range)
        if len(content) != byte_range.size:
            raise RemoteIntegrityError(
                f"{key}: bytes {byte_range.start}-{byte_range.end} are {len(content)} bytes",
                remedy="run tierd verify; the object was cut short or replaced",
            )
        within = [
            number
            for number in segment.layout.chunks_of(byte_range)
            if (original := segment.layout.original_range(number)).start >= byte_range.start
            and original.end <= byte_range.end
        ]
        if within:
            run = range(within[0], within[-1] + 1)
            held = memoryview(content)[segment.layout.stored_range(run).start - byte_range.start :]
            await self._decoded(key, segment, run, _cut(held, segment.layout, run))
        return content

    async def _read_chunks(self, reads: EarlyReads, key: str, segment: OpenSegment, run: range) -> list[ByteView]:
        """Fetch and decode neighbouring chunks."""
        if self._cache is None:
            stored = await _read_stored(reads, key, segment.layout.stored_range(run), _named(run))
            pieces = _cut(memoryview(stored), segment.layout, run)
        else:
            pieces = await _read_one_by_one(reads, key, segment.layout, run)
        try:
            return await self._decoded(key, segment, run, pieces)
        except RemoteIntegrityError:
            if self._cache is None:
                raise
        # A cache keeps bytes before they are checked. They may have been damaged on their way, or in the store, and the
        # store may have them whole by now.
        for number in run:
            await self._cache.drop(key, segment.layout.stored_range(range(number, number + 1)))
        pieces = await _read_one_by_one(reads, key, segment.layout, run)
        return await self._decoded(key, segment, run, pieces)

    async def _decoded(
        self, key: str, segment: OpenSegment, run: range, pieces: Sequence[bytes | memoryview]
    ) -> list[ByteView]:
        """Decode chunks in threads, all at once. A failure wastes the work on at most one run."""
        decodes = [
            partial(segment.decode_chunk, number, piece, key=key) for number, piece in zip(run, pieces, strict=True)
        ]
        return list(await asyncio.gather(*map(self._transform.threads.submit, decodes)))


async def _read_one_by_one(reads: EarlyReads, key: str, layout: ChunkLayout, run: range) -> list[ByteView]:
    works: dict[str, Callable[[], Coroutine[object, object, ByteView]]] = {}
    for number in run:
        alone = range(number, number + 1)
        works[_named(alone)] = partial(_read_stored, reads, key, layout.stored_range(alone), _named(alone))
    return await together(works)


async def _read_stored(reads: EarlyReads, key: str, stored_range: ByteRange, what: str) -> bytes:
    stored = await reads.read(stored_range)
    if len(stored) != stored_range.size:
        raise RemoteIntegrityError(
            f"{key}: bytes {stored_range.start}-{stored_range.end}, {what}, are {len(stored)} bytes",
            remedy="run tierd verify; the object was cut short or replaced",
        )
    return stored


def _cut(stored: memoryview, layout: ChunkLayout, run: range) -> list[ByteView]:
    """Cut ``stored``, which begins with the first of the chunks, into chunks."""
    first = layout.stored_range(run).start
    ranges = [layout.stored_range(range(number, number + 1)) for number in run]
    return [stored[r.start - first : r.end + 1 - first] for r in ranges]


def _named(run: range) -> str:
    return f"chunk {run.start}" if len(run) == 1 else f"chunks {run.start} to {run.stop - 1}"


class _SharedCall(Generic[T]):
    def __init__(self, task: "asyncio.Future[T]") -> None:
        self.task = task
        self.waiters = 0


class SharedCalls(Generic[T]):
    """Calls under way, each shared by all callers that ask for the same subject; it ends with the last of them."""

    def __init__(self) -> None:
        self._calls: dict[str, _SharedCall[T]] = {}

    async def ask(self, subject: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of ``call``, or of the call that is under way for ``subject``.

        Every caller gets the failure of a shared call. A cancelled caller leaves the call to the others. The last
        cancelled caller ends the call and waits for its end.
        """
        shared = self._calls.get(subject)
        if shared is None:
            shared = self._calls[subject] = _SharedCall(asyncio.ensure_future(call()))
            begun = shared
            shared.task.add_done_callback(lambda _: self._forget(subject, begun))
        shared.waiters += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiters -= 1
            if not shared.waiters and not shared.task.done():
                self._forget(subject, shared)
                drop_task(shared.task)
                await wait_all([shared.task])

    def _forget(self, subject: str, call: _SharedCall[T]) -> None:
        if self._calls.get(subject) is call:
            del self._calls[subject]
