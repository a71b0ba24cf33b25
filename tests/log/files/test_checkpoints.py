import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.log.batches import TOPIC_ID, TOPIC_ID_TEXT
from tierd.errors import LogDirOfflineError, MissingArtefactError
from tierd.log import encode_lineage, parse_lineage, read_lineage, read_log_start, read_offset_checkpoint
from tierd.log.files.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    encode_offset_checkpoint,
    encode_topic_id,
    ensure_checkpoint,
    load_offset_checkpoint,
    parse_offset_checkpoint,
    parse_topic_id,
    read_topic_id,
    write_offset_checkpoint,
)
from tierd.log.files.disk import OsDisk
from tierd.log.log_errors import CheckpointError
from tierd.model import Lineage, TopicPartition

offsets = st.integers(0, 2**63 - 1)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


@pytest.mark.spec("log-format DIR-21")
def test_offset_checkpoint_is_read_with_every_entry(tmp_path: Path) -> None:
    file = tmp_path / "replication-offset-checkpoint"
    file.write_text("0\n2\norders 0 17\na.b-c 12 9223372036854775807\n")
    assert read_offset_checkpoint(file) == {TopicPartition("orders", 0): 17, TopicPartition("a.b-c", 12): 2**63 - 1}


@pytest.mark.spec("log-format DIR-22")
@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n"])
def test_an_empty_checkpoint_has_no_entries(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    assert read_offset_checkpoint(tmp_path / "c") == {}
    assert parse_lineage(text.encode(), name="c") == Lineage()


def test_an_absent_offset_checkpoint_has_no_entries(tmp_path: Path) -> None:
    assert read_offset_checkpoint(tmp_path / "replication-offset-checkpoint") == {}


@pytest.mark.parametrize(
    ("written_s", "made_s", "start"),
    [(1, 2, None), (2, 2, 8), (3, 2, 8), (3, 1 << 33, 8)],
    ids=["of-a-former-log", "at-the-same-time", "of-this-log", "log-of-the-future"],
)
def test_log_start_counts_unless_it_was_written_before_the_log_was_made(
    tmp_path: Path, written_s: int, made_s: int, start: int | None
) -> None:
    checkpoint, directory = tmp_path / "log-start-offset-checkpoint", tmp_path / "orders-0"
    directory.mkdir()
    for file, seconds in ((checkpoint, written_s), (directory / "partition.metadata", made_s)):
        file.write_text("0\n1\norders 0 8\n")
        os.utime(file, (seconds, seconds))
    assert read_log_start(directory) == start
    (directory / "partition.metadata").unlink()
    assert read_log_start(directory) == 8
    assert read_log_start(tmp_path / "orders-1") is None


def test_unreadable_checkpoint_of_a_broker_is_an_offline_log_dir(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with pytest.raises(LogDirOfflineError):
        read_offset_checkpoint(tmp_path / "c")


@pytest.mark.spec("log-format DIR-22")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n0\n", 1),
        ("x\n0\n", 1),
        ("0\n2\norders 0 1\n", 2),
        ("0\nx\n", 2),
        ("0\n1\norders 0\n", 3),
        ("0\n1\norders zero 0\n", 3),
        ("0\n2\norders 0 1\norders 1 1_000\n", 4),
        ("0\n1\norders 0 9223372036854775808\n", 3),
        ("0\n1\norders 0 ٣\n", 3),
    ],
)
def test_a_damaged_offset_checkpoint_names_its_line(text: str, line: int) -> None:
    with pytest.raises(CheckpointError, match=f"^file:{line}: "):
        parse_offset_checkpoint(text.encode(), name="file")


@pytest.mark.spec("remote-tiering 120")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("2\n1\n0 0\n", 1),
        ("0\n3\n0 0\n1 5\n", 2),
        ("0\n2\n1 5\n0 9\n", 4),
        ("0\n2\n0 9\n1 5\n", 4),
        ("0\n2\n0 0\n0 5\n", 4),
        ("0\n1\n0 -1\n", 3),
        ("0\n1\n-1 0\n", 3),
        ("0\n1\n0 0 0\n", 3),
        ("0\n1\nzero 0\n", 3),
    ],
)
def test_a_damaged_epoch_checkpoint_names_its_line(text: str, line: int) -> None:
    with pytest.raises(CheckpointError, match=f"^file:{line}: "):
        parse_lineage(text.encode(), name="file")


@pytest.mark.spec("remote-tiering 115")
def test_later_line_of_an_epoch_checkpoint_replaces_an_earlier_one_at_its_offset() -> None:
    lineage = parse_lineage(b"0\n2\n4 99\n5 99\n", name="file")
    assert lineage.epoch_for(99) == 5
    assert lineage == Lineage.of([(5, 99)])


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), offsets), max_size=20))
@pytest.mark.spec("log-format DIR-23")
def test_a_written_lineage_is_read_back(entries: list[tuple[int, int]]) -> None:
    lineage = Lineage.of(sorted(entries))
    assert parse_lineage(encode_lineage(lineage), name="file") == lineage


def test_a_lineage_is_found_by_file_or_directory(tmp_path: Path) -> None:
    with pytest.raises(MissingArtefactError):
        read_lineage(tmp_path)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    assert read_lineage(tmp_path) == read_lineage(tmp_path / "leader-epoch-checkpoint") == Lineage.of([(3, 0)])


@pytest.mark.spec("log-format DIR-35")
def test_a_topic_id_needs_no_newline_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(MissingArtefactError):
        read_topic_id(tmp_path)
    (tmp_path / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID_TEXT}")
    assert read_topic_id(tmp_path) == TOPIC_ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0\n",
        "version: -1\ntopic_id: EjRWeJq83vD-3LqYdlQyEA",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic: EjRWeJq83vD-3LqYdlQyEA",
        "version: x\ntopic_id: EjRWeJq83vD-3LqYdlQyEA",
        "version: 0\ntopic_id: ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ",
    ],
)
def test_a_damaged_topic_id_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError):
        parse_topic_id(text.encode(), name="file")


@given(st.one_of(st.binary(max_size=200), st.from_regex(rb"\A0\n[0-9]\n([a-z0-9 ]{0,9}\n){0,3}\Z")))
@example(b"0\n1\n" + b"9" * 5000 + b" 0\n")
def test_any_bytes_of_a_checkpoint_are_parsed_or_refused(data: bytes) -> None:
    for parse in (parse_lineage, parse_offset_checkpoint, parse_topic_id):
        with suppress(CheckpointError):
            parse(data, name="file")


@pytest.mark.spec("log-format DIR-20")
@pytest.mark.spec("log-format DIR-21")
def test_an_offset_checkpoint_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, first, second = (
        OsDisk(),
        {TopicPartition("a", 0): 1, TopicPartition("b.c", 7): 2},
        {TopicPartition("a", 1): 3},
    )
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    write_offset_checkpoint(disk, Path("logs/") / RECOVERY_POINT_CHECKPOINT, first)
    file = tmp_path / "logs" / RECOVERY_POINT_CHECKPOINT
    assert load_offset_checkpoint(disk, file) == read_offset_checkpoint(file) == first
    write_offset_checkpoint(disk, file, second)
    assert load_offset_checkpoint(disk, Path("logs//") / RECOVERY_POINT_CHECKPOINT) == second
    assert file.read_bytes() == b"0\n1\na 1 3\n"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.spec("log-format DIR-21")
@given(st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), offsets))
def test_many_topics_and_partitions_are_read_back(entries: dict[TopicPartition, int]) -> None:
    assert parse_offset_checkpoint(encode_offset_checkpoint(entries), name="c") == entries


def test_ensured_checkpoint_is_created_empty_and_later_left_as_it_is(tmp_path: Path) -> None:
    disk = OsDisk()
    ensure_checkpoint(disk, tmp_path / "c")
    assert load_offset_checkpoint(disk, tmp_path / "c") == {}
    write_offset_checkpoint(disk, tmp_path / "c", {TopicPartition("a", 0): 1})
    ensure_checkpoint(disk, tmp_path / "c")
    assert load_offset_checkpoint(disk, tmp_path / "c") == {TopicPartition("a", 0): 1}


@pytest.mark.spec("log-format DIR-22")
def test_unreadable_own_checkpoint_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        load_offset_checkpoint(OsDisk(), tmp_path / "c")


def test_checkpoint_above_the_size_limit_is_refused_without_a_read(tmp_path: Path) -> None:
    with (tmp_path / "c").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="too many"):
        load_offset_checkpoint(OsDisk(), tmp_path / "c")


@pytest.mark.spec("log-format DIR-35")
def test_a_topic_id_is_written_without_an_end_of_line() -> None:
    assert encode_topic_id(TOPIC_ID) == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}".encode()
    assert parse_topic_id(encode_topic_id(TOPIC_ID), name="f") == TOPIC_ID


def test_a_lineage_of_many_epochs_is_parsed_in_one_pass() -> None:
    count = 200_000
    data = f"0\n{count}\n".encode() + b"".join(b"%d %d\n" % (n, n) for n in range(count))
    assert len(parse_lineage(data, name="it").entries) == count
