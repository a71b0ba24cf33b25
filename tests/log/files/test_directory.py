import os
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import TOPIC_ID, make_partition
from tierd.errors import LogDirOfflineError, MissingArtefactError, PartitionNameError, SegmentChangedError
from tierd.log import DirectoryKind, KnownDirectory, identify_directory, list_log_dir, parse_directory_name
from tierd.model import TopicPartition

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.spec("log-format DIR-01")
def test_directory_name_is_parsed_to_topic_and_partition() -> None:
    assert parse_directory_name("test_topic-143") == (TopicPartition("test_topic", 143), DirectoryKind.CURRENT)


@pytest.mark.spec("log-format DIR-02")
@pytest.mark.parametrize("kind", [DirectoryKind.DELETE, DirectoryKind.FUTURE, DirectoryKind.STRAY])
def test_topic_with_dots_and_dashes_is_parsed_under_every_suffix(kind: DirectoryKind) -> None:
    name = f"foo.bar-testtopic-42.{ID}{kind.value}"
    assert parse_directory_name(name) == (TopicPartition("foo.bar-testtopic", 42), kind)


@pytest.mark.spec("log-format DIR-03")
@pytest.mark.spec("log-format DIR-04")
@pytest.mark.spec("log-format DIR-05")
@pytest.mark.spec("log-format DIR-06")
@pytest.mark.spec("log-format DIR-07")
@pytest.mark.spec("log-format DIR-08")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "test_topic1999",
        f"test_topic1999.{ID}-delete",
        "test_topic1999.-delete",
        "-1999",
        f"-1999.{ID}-delete",
        "test_topic-",
        f"test_topic-.{ID}-delete",
        "test_topic-.-delete",
        "test_topic-1999a",
        "non_kafka_dir",
        "non_kafka_dir-delete",
        "lost+found",
        "a-99999999999",
        "a b-0.x-delete",
    ],
)
def test_name_that_is_no_partition_is_refused(name: str) -> None:
    with pytest.raises(PartitionNameError):
        parse_directory_name(name)


def test_directory_name_is_split_at_its_last_dash() -> None:
    assert parse_directory_name("a--1")[0] == TopicPartition("a-", 1)


@given(st.text(max_size=60))
def test_any_directory_name_is_parsed_or_refused(name: str) -> None:
    try:
        partition, _ = parse_directory_name(name)
    except PartitionNameError:
        return
    assert partition.topic


def test_a_log_dir_lists_its_partitions_with_kind_and_topic_id(tmp_path: Path) -> None:
    make_partition(tmp_path, {0: b""})
    make_partition(tmp_path, {0: b""}, name=f"orders-1.{ID}-future")
    (tmp_path / "meta.properties").write_text("cluster.id=x\n")
    listing = list_log_dir(tmp_path)
    assert [(p.path.name, p.kind, p.topic_id) for p in listing.partitions] == [
        ("orders-0", DirectoryKind.CURRENT, TOPIC_ID),
        (f"orders-1.{ID}-future", DirectoryKind.FUTURE, TOPIC_ID),
    ]
    assert listing.partitions[0].partition.topic_id == TOPIC_ID
    assert listing.partitions[0].inode == (tmp_path / "orders-0").stat().st_ino
    assert not listing.ignored


@pytest.mark.spec("log-format DIR-14")
def test_listing_leaves_out_directories_of_kafka_itself(tmp_path: Path) -> None:
    (tmp_path / "remote-log-index-cache").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    listing = list_log_dir(tmp_path)
    assert (listing.partitions, listing.ignored) == ((), ())


def test_unknown_directory_is_reported_and_partitions_are_still_listed(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    make_partition(tmp_path, {0: b""})
    listing = list_log_dir(tmp_path)
    assert [name for name, _ in listing.ignored] == ["lost+found"]
    assert len(listing.partitions) == 1


def test_damaged_topic_id_is_reported_as_an_ignored_directory(tmp_path: Path) -> None:
    make_partition(tmp_path, {0: b""})
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"\xff\xfe")
    (name, why), *others = list_log_dir(tmp_path).ignored
    assert not others
    assert name == "orders-0"
    assert "partition.metadata:1" in why


def test_a_partition_without_topic_id_is_listed_but_has_no_identity(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (found,) = list_log_dir(tmp_path).partitions
    assert found.topic_id is None
    with pytest.raises(MissingArtefactError, match=r"partition\.metadata"):
        _ = found.partition


def test_a_linked_partition_directory_is_followed(tmp_path: Path) -> None:
    make_partition(tmp_path / "elsewhere", {0: b""})
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    (log_dir / "orders-0").symlink_to(tmp_path / "elsewhere" / "orders-0")
    (found,) = list_log_dir(log_dir).partitions
    assert found == identify_directory(log_dir / "orders-0")


def test_missing_log_dir_is_offline(tmp_path: Path) -> None:
    with pytest.raises(LogDirOfflineError, match="No such file"):
        list_log_dir(tmp_path / str(uuid4()))


def test_missing_partition_directory_is_reported_as_changed(tmp_path: Path) -> None:
    with pytest.raises(SegmentChangedError):
        identify_directory(tmp_path / "orders-0")


def test_unchanged_directory_is_not_identified_again(tmp_path: Path) -> None:
    before = make_partition(tmp_path, {0: b""})
    known = {before.path.name: KnownDirectory(before, before.path.stat().st_mtime_ns)}
    (before.path / "partition.metadata").write_text("not read")
    assert list_log_dir(tmp_path, known=known).partitions == (before,)
    os.utime(before.path, ns=(0, before.path.stat().st_mtime_ns + 1))  # as a file that came or went does
    assert list_log_dir(tmp_path, known=known).partitions == ()


def test_directory_with_a_known_name_and_another_inode_is_identified_again(tmp_path: Path) -> None:
    before = make_partition(tmp_path, {0: b""})
    other = replace(before, topic_id=uuid4(), inode=before.inode + 1)
    known = {before.path.name: KnownDirectory(other, before.path.stat().st_mtime_ns)}
    assert list_log_dir(tmp_path, known=known).partitions == (before,)
