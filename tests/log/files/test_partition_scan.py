import shutil
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import make_partition, plain
from tierd.errors import SegmentChangedError
from tierd.log import SegmentFiles, encode_topic_id, file_name, identify_directory, scan_again, scan_partition
from tierd.log.files.partition_scan import MAX_OFFSET, LiveSegments, parse_file_name, with_next_base
from tierd.model import Lineage


@pytest.mark.spec("log-format DIR-12")
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", ".log.deleted"])
def test_offset_and_suffix_are_parsed_from_a_file_name(suffix: str) -> None:
    assert parse_file_name(file_name(23423423, suffix)) == (23423423, suffix)


@pytest.mark.parametrize(
    "name", ["", "1.log", "0000000000000000000a.log", "99999999999999999999.log", "0" * 20 + "log"]
)
def test_name_without_an_offset_is_parsed_to_none(name: str) -> None:
    assert parse_file_name(name) is None


def test_the_last_segment_is_active_and_the_others_end_where_the_next_begins(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b"", 10: b"", 25: b""})
    scan = scan_partition(directory)
    assert [(s.base_offset, s.next_base_offset) for s in scan.segments] == [(0, 10), (10, 25), (25, None)]
    assert scan.segments[0].end_offset == 9
    assert scan.segments[0].producer_snapshot == directory.path / "00000000000000000010.snapshot"
    with pytest.raises(ValueError, match="active"):
        _ = scan.segments[2].end_offset
    assert scan.lineage == Lineage.of([(0, 0)])
    assert scan.lineage_problem is None


def test_segments_renamed_for_deletion_are_listed_with_their_ends(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b"", 10: b"", 25: b""})
    for base in (0, 10):
        (directory.path / file_name(base, ".log")).rename(directory.path / file_name(base, ".log.deleted"))
    scan = scan_partition(directory)
    assert [(s.base_offset, s.next_base_offset, s.deleted) for s in scan.deleted_segments] == [
        (0, 10, True),
        (10, 25, True),
    ]
    assert scan.deleted_segments[0].log.name == "00000000000000000000.log.deleted"
    assert scan.deleted_segments[0].offset_index.name == "00000000000000000000.index.deleted"
    assert [s.base_offset for s in scan.segments] == [25]


def test_the_snapshot_of_a_deleted_segment_is_found_under_either_name(tmp_path: Path) -> None:
    segment = SegmentFiles(tmp_path, 0, 10, deleted=True)
    assert segment.producer_snapshot.name == "00000000000000000010.snapshot.deleted"
    (tmp_path / "00000000000000000010.snapshot").touch()
    assert segment.producer_snapshot.name == "00000000000000000010.snapshot"


def test_scan_during_a_replacement_is_refused_as_changed(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b"", 20: b""})
    (directory.path / "00000000000000000010.log.swap").write_bytes(plain(10))
    with pytest.raises(SegmentChangedError, match="replacing"):
        scan_partition(directory)


def test_snapshots_are_listed_and_other_files_are_not_segments(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b"", 10: b""})
    for name in ("00000000000000000010.snapshot", "00000000000000000012.snapshot", "00000000000000000005.log.cleaned"):
        (directory.path / name).touch()
    (directory.path / "notes.log").touch()
    scan = scan_partition(directory)
    assert scan.snapshots == (10, 12)
    assert [s.base_offset for s in scan.segments] == [0, 10]


@pytest.mark.parametrize("content", [None, b"0\nx\n"])
def test_missing_or_damaged_lineage_is_reported_and_the_scan_goes_on(tmp_path: Path, content: bytes | None) -> None:
    directory = make_partition(tmp_path, {0: b""})
    file = directory.path / "leader-epoch-checkpoint"
    file.unlink() if content is None else file.write_bytes(content)
    scan = scan_partition(directory)
    assert scan.lineage == Lineage()
    assert scan.lineage_problem is not None
    assert str(file) in scan.lineage_problem


def test_missing_directory_is_reported_as_changed(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b""})
    shutil.rmtree(directory.path)
    with pytest.raises(SegmentChangedError):
        scan_partition(directory)


def test_directory_created_again_under_the_same_name_is_reported_as_changed(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: b""})
    directory.path.rename(tmp_path / "kept")  # keeps its inode in use
    make_partition(tmp_path, {0: b""})
    with pytest.raises(SegmentChangedError, match="another directory"):
        scan_partition(directory)


@pytest.mark.parametrize("identity", [encode_topic_id(UUID(int=5)), b"not understood", None])
def test_directory_that_became_one_of_another_topic_is_not_scanned_again(
    tmp_path: Path, identity: bytes | None
) -> None:
    directory = make_partition(tmp_path, {0: b"", 10: b""})
    assert scan_again(directory) == scan_partition(directory)
    file = directory.path / "partition.metadata"
    file.unlink() if identity is None else file.write_bytes(identity)
    with pytest.raises(SegmentChangedError, match="another directory"):
        scan_again(directory)


def test_modification_time_of_a_moment_ago_is_not_returned(tmp_path: Path, golden: Path) -> None:
    assert scan_partition(make_partition(tmp_path, {0: b""})).mtime_ns == -1
    settled = identify_directory(golden / "kafka-3.9.2/clean/logdir/txn-0")
    assert settled is not None
    assert scan_partition(settled).mtime_ns == settled.path.stat().st_mtime_ns


def test_scan_of_a_directory_with_many_files_lists_each_segment(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, dict.fromkeys(range(0, 7000, 10), b""))
    assert [s.base_offset for s in scan_partition(directory).segments] == list(range(0, 7000, 10))


BASES = st.lists(st.integers(0, MAX_OFFSET), unique=True, max_size=12).map(sorted)


@given(BASES, st.integers(-15, 15), st.slices(13))
def test_live_segments_are_the_tuple_of_their_files(bases: list[int], at: int, part: slice) -> None:
    path = Path("/kafka/orders-0")
    segments = LiveSegments(path, bases)
    expected = tuple(SegmentFiles(path, base, end) for base, end in with_next_base(bases))
    assert (tuple(segments), segments[part], segments[::-1]) == (expected, expected[part], expected[::-1])
    assert (len(segments), bool(segments), list(reversed(segments))) == (len(bases), bool(bases), [*reversed(expected)])
    assert segments == expected
    assert expected == segments
    assert hash(segments) == hash(expected)
    assert segments == LiveSegments(path, bases)
    assert segments[part] == segments[part]
    assert hash(segments[part]) == hash(expected[part])
    assert segments != LiveSegments(path, bases[:-1] or [MAX_OFFSET, *bases])
    assert segments != LiveSegments(Path("/kafka/orders-1"), bases)
    if -len(bases) <= at < len(bases):
        assert segments[at] == expected[at]
    else:
        with pytest.raises(IndexError):
            segments[at]


def test_slice_and_loop_that_ends_early_make_the_segments_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = LiveSegments._made

    def counted(segments: LiveSegments, index: int) -> SegmentFiles:
        made.append(index)
        return make(segments, index)

    monkeypatch.setattr(LiveSegments, "_made", counted)
    segments = LiveSegments(Path("/kafka/orders-0"), range(0, 100_000, 10))
    behind = segments[5_000:]
    assert (len(behind), made) == (5_000, [])
    assert next(iter(behind)).base_offset == 50_000
    assert behind[1:3] == (behind[1], behind[2])
    assert len(made) < 10
