"""Codec of ``__consumer_offsets``: records of real brokers, every version, and bytes of any kind."""

import gzip
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.catalogue.offsets_log import commit_key, commit_value, text, unsigned_varint
from tierd.log import iter_batches
from tierd.model import TopicPartition, uuid_to_text
from tierd.restore.catalogue.offsets_codec import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetsRecordError,
    OtherKey,
    decode_commit,
    decode_key,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSETS = st.integers(0, (1 << 63) - 1)
EPOCHS = st.integers(-1, (1 << 31) - 1)
EXPIRIES = st.one_of(st.none(), INT64.filter(lambda number: number != -1))
TOPIC_IDS = st.one_of(st.none(), st.uuids().filter(lambda each: each.int))


def dumped(oracle: Path) -> Iterator[tuple[dict[str, object], dict[str, object] | None]]:
    """Yield key and value of each record as Kafka's own dump tool prints them."""
    with gzip.open(oracle / "dump.txt.gz", "rt") as lines:
        for line in lines:
            if found := re.search(r"key: (\{.*?\}\}) payload: (\{.*\}|null)", line):
                yield json.loads(found[1]), json.loads(found[2])


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_records_of_a_real_broker_decode_as_its_dump_tool_prints_them(golden: Path, version: str) -> None:
    stage = golden / f"kafka-{version}" / "clean"
    (log,) = (stage / "logdir" / "__consumer_offsets-0").glob("*.log")
    records = [record for batch in iter_batches(log.read_bytes(), name=log.name) for record in batch.records()]
    oracle = list(dumped(stage / "oracle" / "__consumer_offsets-0"))
    assert len(records) == len(oracle) > 0
    for record, (key, value) in zip(records, oracle, strict=True):
        assert record.value is not None
        decoded, committed = decode_key(record.key), decode_commit(record.value)
        assert isinstance(decoded, OffsetCommitKey)
        assert value is not None
        assert key["data"] == {
            "group": decoded.group,
            "topic": decoded.partition.topic,
            "partition": decoded.partition.partition,
        }
        topic_id = {} if committed.topic_id is None else {"topicId": uuid_to_text(committed.topic_id)}
        assert value["data"] == topic_id | {
            "offset": committed.offset,
            "leaderEpoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "commitTimestamp": committed.committed_ms,
        }


@given(version=st.sampled_from([0, 1]), group=TEXTS, topic=TEXTS.filter(bool), partition=st.integers(0, 2**31 - 1))
def test_key_of_a_commit_has_group_topic_and_partition(version: int, group: str, topic: str, partition: int) -> None:
    name = TopicPartition(topic, partition)
    assert decode_key(commit_key(group, name, version=version)) == OffsetCommitKey(group, name)


@given(
    version=st.sampled_from([0, 1, 2, 3, 4]),
    value=st.builds(
        OffsetCommitValue,
        OFFSETS,
        EPOCHS,
        TEXTS,
        INT64,
        EXPIRIES,
        TOPIC_IDS,
    ),
)
def test_value_of_every_version_has_the_fields_of_that_version(version: int, value: OffsetCommitValue) -> None:
    expected = value._replace(
        leader_epoch=value.leader_epoch if version >= 3 else -1,
        expire_ms=value.expire_ms if version == 1 else None,
        topic_id=value.topic_id if version == 4 else None,
    )
    assert decode_commit(commit_value(value, version=version)) == expected


def test_tagged_fields_of_a_later_broker_are_passed_over() -> None:
    plain = commit_value(OffsetCommitValue(7, 1, "m", 5), version=4)
    topic_id = UUID(int=9)
    tagged = unsigned_varint(2) + b"\x00\x10" + topic_id.bytes + b"\x05\x03abc"
    assert decode_commit(plain[:-1] + tagged) == OffsetCommitValue(7, 1, "m", 5, None, topic_id)


def test_key_of_a_group_is_its_name_and_later_kinds_are_not_read() -> None:
    assert decode_key(struct.pack(">h", 2) + text("billing")) == GroupMetadataKey("billing")
    assert [decode_key(struct.pack(">h", n) + b"?") for n in range(3, 24)] == [OtherKey(n) for n in range(3, 24)]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "no key"),
        (b"\x00", "the bytes end"),
        (b"\xff\xff", "version -1"),
        (b"\x00\x01" + text("g") + text("") + bytes(4), "partition 0 of topic ''"),
        (b"\x00\x01" + text("g") + text("t") + b"\xff\xff\xff\xff", "partition -1"),
        (b"\x00\x02\x00\x01\xff", "not UTF-8"),
        (b"\x00\x02\xff\xff", "a text of -1 bytes"),
    ],
)
def test_damaged_key_is_refused_with_its_problem(key: bytes | None, problem: str) -> None:
    with pytest.raises(OffsetsRecordError, match=problem):
        decode_key(key)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "the bytes end"),
        (b"\x00\x05" + bytes(40), "version 5"),
        (commit_value(OffsetCommitValue(1, 1, "", 1))[:-1], "the bytes end"),
        (struct.pack(">hqi", 3, -1, 0) + text("") + bytes(8), "committed offset -1"),
        (struct.pack(">hqi", 4, 1, 0) + b"\x00", "a text of -1 bytes"),
        (struct.pack(">hqi", 4, 1, 0) + b"\x01" + bytes(8) + b"\x01\x00\x02ab", "a topic id of 2 bytes"),
        (struct.pack(">hqi", 4, 1, 0) + b"\xff" * 6, "more than five bytes"),
    ],
)
def test_damaged_value_is_refused_with_its_problem(value: bytes, problem: str) -> None:
    with pytest.raises(OffsetsRecordError, match=problem):
        decode_commit(value)


@given(data=st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (decode_key, decode_commit):
        try:
            decode(data)
        except OffsetsRecordError:
            continue
