"""Promises of every ``RemoteStorageManager`` (remote-tiering 4 and 23.14). Provide an ``objects`` fixture.

The contract runs for every way of storing a segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.remote_segments import segment
from tests.fakes.transforms import KEY_SEED, TRANSFORM_NAMES, mixed_content, transform_named
from tierd.errors import RemoteConflictError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.model import ByteRange, IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierd.remote import ObjectStore, RemoteStorageManager, SegmentManifest, SegmentStorage, Transform
from tierd.remote.retrying import Retry
from tierd.testing import cancel_at, checksums_of


@dataclass(frozen=True)
class Rolled:
    """A rolled segment as the copy task passes it on."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    content: bytes

    @property
    def indexes(self) -> dict[IndexType, bytes | None]:
        """Return every artefact beside the log."""
        return {
            IndexType.OFFSET: self.data.offset_index,
            IndexType.TIMESTAMP: self.data.time_index,
            IndexType.TRANSACTION: self.data.transaction_index,
            IndexType.PRODUCER_SNAPSHOT: self.data.producer_snapshot,
            IndexType.LEADER_EPOCH: self.data.leader_epoch_index,
            IndexType.KEY_HASHES: self.data.key_hashes,
        }


def rolled(
    folder: Path, content: bytes, *, start_offset: int = 0, transaction_index: bytes | None = b"transactions"
) -> Rolled:
    """Write a segment whose log is ``content``. Its artefacts have different bytes, and one is empty."""
    log = folder / f"{start_offset:020d}.log"
    log.write_bytes(content)
    data = LogSegmentData(
        log=log,
        log_checksums=checksums_of(content),
        batch_count=1,
        record_count=10,
        offset_index=b"offset index",
        time_index=b"",
        transaction_index=transaction_index,
        producer_snapshot=b"producer snapshot",
        leader_epoch_index=b"0\n1\n0 0\n",
        key_hashes=b"hashes of keys",
    )
    metadata = segment(start_offset, start_offset + 9, size_bytes=len(content))
    return Rolled(metadata, data, content)


def storage_over(store: ObjectStore, transform: Transform) -> SegmentStorage:
    """Return a storage of a new process that has copied no segment yet."""
    return SegmentStorage(
        store, cluster_id="cluster", broker_id=1, key_prefix="pre/fix", chunk_size=1 << 20, transform=transform
    )


class RemoteStorageContract:
    """Contract of a remote storage; every test gets an empty one."""

    @pytest.fixture
    def remote(self, objects: ObjectStore, transform: Transform) -> SegmentStorage:
        """Return the storage of one process."""
        return storage_over(objects, transform)

    @pytest.fixture
    def restarted(self, objects: ObjectStore, transform: Transform) -> SegmentStorage:
        """Return the storage of the next process: with the same objects, and no memory of attempts."""
        return storage_over(objects, transform)

    @pytest.fixture(params=TRANSFORM_NAMES)
    def transform(self, request: pytest.FixtureRequest) -> Iterator[Transform]:
        """Return the transform of the stored segments."""
        transform = transform_named(request.param)
        yield transform
        transform.close()

    @pytest.fixture
    def one(self, tmp_path: Path) -> Rolled:
        """Return a segment of three checksum blocks and a bit, with every artefact."""
        return rolled(tmp_path, mixed_content((3 << 20) + 5))

    @pytest.mark.spec("remote-tiering 232")
    async def test_empty_log_is_copied_with_all_its_indexes(self, remote: RemoteStorageManager, tmp_path: Path) -> None:
        empty = rolled(tmp_path, b"")
        await remote.copy_log_segment_data(empty.metadata, empty.data)
        for kind, content in empty.indexes.items():
            assert await remote.fetch_index(empty.metadata, kind) == content
        assert await remote.fetch_log_segment(empty.metadata, ByteRange(0, 99)) == b""

    @pytest.mark.spec("remote-tiering 233")
    async def test_the_stored_log_equals_the_local_file(self, remote: RemoteStorageManager, tmp_path: Path) -> None:
        tiny = rolled(tmp_path, bytes([0, 1, 2]))
        await remote.copy_log_segment_data(tiny.metadata, tiny.data)
        assert await remote.fetch_log_segment(tiny.metadata, ByteRange(0, 2)) == tiny.data.log.read_bytes()

    @pytest.mark.spec("remote-tiering 234")
    async def test_a_copied_segment_is_readable_from_the_start(self, remote: RemoteStorageManager, one: Rolled) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        assert await remote.fetch_log_segment(one.metadata, ByteRange(0, len(one.content) - 1)) == one.content

    @pytest.mark.spec("remote-tiering 235")
    async def test_each_index_is_fetched_as_it_was_copied(self, remote: RemoteStorageManager, one: Rolled) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        for kind, content in one.indexes.items():
            assert await remote.fetch_index(one.metadata, kind) == content

    @pytest.mark.spec("remote-tiering 236")
    async def test_objects_of_a_deleted_segment_are_not_found(self, remote: RemoteStorageManager, one: Rolled) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        await remote.delete_log_segment_data(one.metadata)
        await self._assert_absent(remote, one.metadata)

    @pytest.mark.spec("remote-tiering 237")
    async def test_a_segment_without_transactions_is_copied_and_deleted(
        self, remote: RemoteStorageManager, tmp_path: Path
    ) -> None:
        plain = rolled(tmp_path, b"records", transaction_index=None)
        await remote.copy_log_segment_data(plain.metadata, plain.data)
        with pytest.raises(RemoteResourceNotFoundError):
            await remote.fetch_index(plain.metadata, IndexType.TRANSACTION)
        assert await remote.fetch_index(plain.metadata, IndexType.LEADER_EPOCH) == plain.data.leader_epoch_index
        await remote.delete_log_segment_data(plain.metadata)
        await self._assert_absent(remote, plain.metadata)

    @pytest.mark.spec("remote-tiering 240")
    async def test_segment_that_was_not_copied_is_not_found(self, remote: RemoteStorageManager) -> None:
        await self._assert_absent(remote, segment(0, 9))

    @pytest.mark.spec("remote-tiering 241")
    @pytest.mark.parametrize(("start", "end"), [(-1, 2**63 - 1), (1, -1), (2, 1)])
    async def test_positions_that_are_no_range_are_refused(
        self, remote: RemoteStorageManager, one: Rolled, start: int, end: int
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        with pytest.raises(ValueError, match="are no range"):
            await remote.fetch_log_segment(one.metadata, ByteRange(start, end))

    @pytest.mark.spec("remote-tiering 242")
    async def test_each_segment_is_fetched_with_its_own_content(
        self, remote: RemoteStorageManager, tmp_path: Path
    ) -> None:
        segments = [rolled(tmp_path, mixed_content(1000, seed=n), start_offset=10 * n) for n in range(2)]
        for each in segments:
            await remote.copy_log_segment_data(each.metadata, each.data)
        for each in segments:
            assert await remote.fetch_log_segment(each.metadata, ByteRange(0, 9999)) == each.content

    @pytest.mark.spec("remote-tiering 243")
    async def test_fetched_range_includes_its_end_and_is_clipped(
        self, remote: RemoteStorageManager, tmp_path: Path
    ) -> None:
        ten = rolled(tmp_path, b"0123456789")
        await remote.copy_log_segment_data(ten.metadata, ten.data)
        assert await remote.fetch_log_segment(ten.metadata, ByteRange(0, 0)) == b"0"
        assert await remote.fetch_log_segment(ten.metadata, ByteRange(9, 9)) == b"9"
        assert await remote.fetch_log_segment(ten.metadata, ByteRange(0, 20)) == b"0123456789"
        assert await remote.fetch_log_segment(ten.metadata, ByteRange(10, 10)) == b""

    @pytest.mark.spec("remote-tiering 244")
    async def test_copy_cancelled_at_any_await_is_completed_by_the_next(
        self, remote: RemoteStorageManager, tmp_path: Path
    ) -> None:
        number = 1
        while True:
            each = rolled(tmp_path, mixed_content(1000, seed=number), start_offset=10 * number)
            copy = remote.copy_log_segment_data
            if not await cancel_at(number, lambda: copy(each.metadata, each.data)):  # noqa: B023 - called at once
                break
            await remote.copy_log_segment_data(each.metadata, each.data)
            assert await remote.fetch_log_segment(each.metadata, ByteRange(0, 9999)) == each.content
            number += 1
        assert number > 1, "the copy was cancelled at least once"

    async def test_repeated_copy_succeeds_with_the_same_custom_metadata(
        self, remote: RemoteStorageManager, one: Rolled
    ) -> None:
        first = await remote.copy_log_segment_data(one.metadata, one.data)
        assert await remote.copy_log_segment_data(one.metadata, one.data) == first
        assert first == remote.custom_metadata(one.metadata)

    async def test_copy_of_other_content_under_the_same_id_is_refused(
        self, remote: RemoteStorageManager, one: Rolled, tmp_path: Path
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        other = rolled(tmp_path, mixed_content(len(one.content), seed=9))
        with pytest.raises(RemoteConflictError):
            await remote.copy_log_segment_data(one.metadata, other.data)
        assert await remote.fetch_log_segment(one.metadata, ByteRange(0, 9999)) == one.content[:10_000]

    async def test_repeated_copy_overwrites_objects_of_another_process_with_the_same_content(
        self, remote: SegmentStorage, restarted: SegmentStorage, one: Rolled
    ) -> None:
        await remote.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
        await restarted.copy_log_segment_data(one.metadata, one.data)
        assert await restarted.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content

    async def test_repeated_copy_overwrites_objects_of_another_process_with_other_content(
        self, remote: SegmentStorage, restarted: SegmentStorage, one: Rolled, tmp_path: Path
    ) -> None:
        await remote.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
        other = rolled(tmp_path, mixed_content(len(one.content), seed=9), transaction_index=None)
        await restarted.copy_log_segment_data(one.metadata, other.data)
        assert await restarted.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == other.content
        for kind, index in other.indexes.items():
            if index is not None:
                assert await restarted.fetch_index(one.metadata, kind) == index

    async def test_repeated_copy_leaves_finished_segment_of_other_content_as_it_is(
        self, remote: SegmentStorage, restarted: SegmentStorage, one: Rolled, tmp_path: Path
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        other = rolled(tmp_path, mixed_content(len(one.content), seed=9))
        with pytest.raises(RemoteConflictError):
            await restarted.copy_log_segment_data(one.metadata, other.data)
        assert await restarted.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content
        for kind, index in one.indexes.items():
            assert await restarted.fetch_index(one.metadata, kind) == index

    async def test_overwriting_copy_that_is_cancelled_at_any_await_is_finished_by_the_next(
        self, remote: SegmentStorage, restarted: SegmentStorage, tmp_path: Path
    ) -> None:
        for number in range(1, 1000):
            former = rolled(tmp_path, mixed_content(1000, seed=number), start_offset=10 * number)
            await remote.stage_log_segment_data(former.metadata, former.data, key_seed=KEY_SEED)
            each = rolled(tmp_path, mixed_content(1000, seed=number + 1), start_offset=10 * number)
            copy = restarted.copy_log_segment_data
            again = partial(copy, former.metadata, each.data)
            was_cancelled = await cancel_at(number, again)
            # A request that was on its way may reach a store over a network late, beside those of the next copy.
            await Retry(clock=FakeClock(), attempts=5)("copy", again)
            assert await restarted.fetch_log_segment(former.metadata, ByteRange(0, 9999)) == each.content
            if not was_cancelled:
                break
        assert number > 1, "the copy was cancelled at least once"

    async def test_late_task_cannot_overwrite_committed_segment(
        self, remote: SegmentStorage, restarted: SegmentStorage, one: Rolled, tmp_path: Path
    ) -> None:
        manifest = await remote.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
        await remote.commit_log_segment(one.metadata, manifest, [])
        other = rolled(tmp_path, mixed_content(len(one.content), seed=9))
        with pytest.raises(RemoteConflictError):
            await restarted.stage_log_segment_data(one.metadata, other.data, key_seed=KEY_SEED)
        assert await restarted.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content

    @pytest.mark.parametrize("past_end", [0, 1, 1000])
    async def test_fetch_at_or_past_the_end_of_a_copied_log_returns_no_bytes(
        self, remote: RemoteStorageManager, one: Rolled, past_end: int
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        start = len(one.content) + past_end
        assert await remote.fetch_log_segment(one.metadata, ByteRange(start, start + 9)) == b""

    @pytest.mark.parametrize("past_end", [0, 1, 1000])
    async def test_fetch_at_or_past_the_end_of_a_deleted_log_is_not_found(
        self, remote: RemoteStorageManager, restarted: RemoteStorageManager, one: Rolled, past_end: int
    ) -> None:
        start = len(one.content) + past_end
        with pytest.raises(RemoteResourceNotFoundError):
            await remote.fetch_log_segment(one.metadata, ByteRange(start, start + 9))
        await remote.copy_log_segment_data(one.metadata, one.data)
        await restarted.fetch_log_segment(one.metadata, ByteRange(0, 9))  # the storage remembers the manifest
        await remote.delete_log_segment_data(one.metadata)
        for storage in (remote, restarted):
            with pytest.raises(RemoteResourceNotFoundError):
                await storage.fetch_log_segment(one.metadata, ByteRange(start, start + 9))

    async def test_stream_without_an_end_yields_the_rest_of_the_log(
        self, remote: RemoteStorageManager, one: Rolled
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        for start in (0, 1, (1 << 20) + 7, len(one.content) - 1):
            pieces = [piece async for piece in remote.stream_log_segment(one.metadata, start)]
            assert b"".join(pieces) == one.content[start:]
            assert all(pieces)

    async def test_stream_with_an_end_yields_the_range_clipped_at_the_end_of_the_log(
        self, remote: RemoteStorageManager, one: Rolled
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        for start, end in ((0, 0), (5, 1 << 20), (1, 1 << 30)):
            pieces = [piece async for piece in remote.stream_log_segment(one.metadata, start, end)]
            assert b"".join(pieces) == one.content[start : end + 1]

    @pytest.mark.parametrize("past_end", [0, 1000])
    async def test_stream_from_past_the_end_is_empty_and_not_found_after_deletion(
        self, remote: RemoteStorageManager, one: Rolled, past_end: int
    ) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        start = len(one.content) + past_end
        assert [piece async for piece in remote.stream_log_segment(one.metadata, start)] == []
        await remote.delete_log_segment_data(one.metadata)
        for position in (0, start):
            with pytest.raises(RemoteResourceNotFoundError):
                await anext(remote.stream_log_segment(one.metadata, position))

    async def test_stream_with_an_end_before_its_start_is_refused(
        self, remote: RemoteStorageManager, one: Rolled
    ) -> None:
        for start, end in ((-1, None), (5, 4)):
            with pytest.raises(ValueError, match="no range"):
                await anext(remote.stream_log_segment(one.metadata, start, end))

    async def test_a_log_that_changed_after_its_check_is_refused_and_not_readable(
        self, remote: RemoteStorageManager, one: Rolled
    ) -> None:
        one.data.log.write_bytes(one.content[:-1] + b"\x00" if one.content[-1] else b"\x01")
        with pytest.raises(RemoteIntegrityError):
            await remote.copy_log_segment_data(one.metadata, one.data)
        await self._assert_absent(remote, one.metadata)

    async def test_a_log_shorter_than_recorded_is_damage(self, remote: RemoteStorageManager, one: Rolled) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        longer = replace(one.metadata, size_bytes=len(one.content) + 10)
        with pytest.raises(RemoteIntegrityError):
            await remote.fetch_log_segment(longer, ByteRange(0, len(one.content)))

    @pytest.mark.parametrize("content", [b"", mixed_content((3 << 20) + 5)], ids=["empty", "four chunks"])
    async def test_staged_segment_is_not_found_until_it_is_committed(
        self, remote: SegmentStorage, tmp_path: Path, content: bytes
    ) -> None:
        one = rolled(tmp_path, content)
        staged = (await remote.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)).encode()
        with pytest.raises(RemoteResourceNotFoundError):
            await remote.fetch_index(one.metadata, IndexType.OFFSET)
        for _ in range(2):
            manifest = SegmentManifest.decode(staged, key="from another process")
            await remote.commit_log_segment(one.metadata, manifest, [])
        assert await remote.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == content
        for kind, index in one.indexes.items():
            assert await remote.fetch_index(one.metadata, kind) == index
        await remote.delete_log_segment_data(one.metadata)

    @pytest.mark.spec("remote-tiering 245")
    async def test_repeated_deletion_succeeds(self, remote: RemoteStorageManager, one: Rolled) -> None:
        await remote.copy_log_segment_data(one.metadata, one.data)
        await remote.delete_log_segment_data(one.metadata)
        await remote.delete_log_segment_data(one.metadata)

    async def _assert_absent(self, remote: RemoteStorageManager, metadata: RemoteLogSegmentMetadata) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            await remote.fetch_log_segment(metadata, ByteRange(0, 9))
        for kind in IndexType:
            with pytest.raises(RemoteResourceNotFoundError):
                await remote.fetch_index(metadata, kind)
