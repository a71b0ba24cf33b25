import json
import re
from pathlib import Path

import pytest

from tierd.model import TopicPartition
from tierd.pipeline.pipeline_errors import ReadOptionError
from tierd.pipeline.source.positions import (
    AtOffsets,
    LogPlace,
    SinceTime,
    StreamPosition,
    decode_position,
    encode_position,
)
from tierd.pipeline.source.read_options import DEFAULT_PARTITION_BYTES, NAMES, parse_options

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_one_option_is_enough_for_a_query() -> None:
    options = parse_options({"subscribe": "orders"}, is_streaming=False)
    assert ORDERS_0 in options.choice
    assert (options.starting, options.ending) == (LogPlace.EARLIEST, LogPlace.LATEST)
    assert options.config == Path("/etc/tierd/tierd.yaml")
    assert (options.is_committed, options.include_headers, options.include_local) == (True, True, False)
    assert options.fail_on_data_loss
    assert options.partition_bytes == DEFAULT_PARTITION_BYTES


def test_streaming_query_begins_at_the_end_by_default() -> None:
    assert parse_options({"subscribe": "orders"}, is_streaming=True).starting is LogPlace.LATEST


@pytest.mark.parametrize(
    ("choice", "wanted", "unwanted"),
    [
        ({"subscribe": "orders, payments"}, ORDERS_1, TopicPartition("order", 0)),
        ({"subscribePattern": "or.*s"}, ORDERS_1, TopicPartition("orders2", 0)),
        ({"assign": '{"orders": [1]}'}, ORDERS_1, ORDERS_0),
    ],
)
def test_partitions_are_chosen_by_names_by_pattern_or_one_by_one(
    choice: dict[str, str], wanted: TopicPartition, unwanted: TopicPartition
) -> None:
    chosen = parse_options(choice, is_streaming=False).choice
    assert wanted in chosen
    assert unwanted not in chosen


def test_case_of_an_option_name_does_not_matter() -> None:
    given = {"SUBSCRIBE": "orders", "INCLUDEHEADERS": "FALSE", "minpartitions": "3"}
    options = parse_options(given, is_streaming=False)
    assert (options.include_headers, options.min_partitions) == (False, 3)
    assert len({name.lower() for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize(
    ("given", "near"),
    [("subscribr", "subscribe"), ("startingOffset", "startingOffsets"), ("maxRecordPerPartition", "maxRecordsPer")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, near: str) -> None:
    with pytest.raises(ReadOptionError, match=f"option {given} is not known; the nearest is {near}"):
        parse_options({given: "x", "subscribe": "orders"}, is_streaming=False)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "none of the options subscribe"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign"),
        ({"subscribe": " , "}, "option subscribe"),
        ({"subscribePattern": "("}, "a regular expression|option subscribePattern"),
        ({"assign": '["a"]'}, "option assign"),
        ({"assign": "{}"}, "option assign"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "option startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "option startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": true}}'}, "option startingOffsets"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot begin at the latest"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "cannot begin at the latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "cannot end at the earliest"),
        ({"subscribe": "a", "startingTimestamp": "2024-01-01"}, "option startingTimestamp"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "option startingOffsetsByTimestamp"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"}, "Strategy"),
        ({"subscribe": "a", "isolation": "serializable"}, "option isolation"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "option includeHeaders"),
        ({"subscribe": "a", "minPartitions": "0"}, "option minPartitions"),
        ({"subscribe": "a", "maxRecordsPerPartition": "many"}, "option maxRecordsPerPartition"),
        ({"subscribe": "a", "partitionBytes": "64 apples"}, "option partitionBytes"),
        ({"subscribe": "a", "maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger"),
    ],
)
def test_unusable_option_is_refused_by_name(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ReadOptionError) as refused:
        parse_options(options, is_streaming=False)
    assert re.search(problem, str(refused.value) + refused.value.remedy)


def test_ending_option_of_a_streaming_query_is_refused() -> None:
    with pytest.raises(ReadOptionError, match="endingTimestamp means nothing to a streaming query"):
        parse_options({"subscribe": "a", "endingTimestamp": "1"}, is_streaming=True)


def test_global_timestamp_overrides_partition_timestamps_and_those_override_offsets() -> None:
    given = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 5, "1": -2}}'}
    assert parse_options(given, is_streaming=False).starting == AtOffsets({ORDERS_0: 5, ORDERS_1: -2})
    given["startingOffsetsByTimestamp"] = '{"orders": {"0": 7}}'
    assert parse_options(given, is_streaming=False).starting == SinceTime({ORDERS_0: 7}, or_latest=False)
    given |= {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}
    assert parse_options(given, is_streaming=False).starting == SinceTime(9, or_latest=True)


def test_progress_has_the_format_of_the_kafka_source_of_spark_with_the_topic_id_beside_the_partitions() -> None:
    position = StreamPosition({ORDERS_1: 8, ORDERS_0: 5}, {"orders": "EjRWeJq83vD-3LqYdlQyEA", "other": "unused"})
    progress = encode_position(position)
    assert progress == {"orders": {"0": 5, "1": 8, "topicId": "EjRWeJq83vD-3LqYdlQyEA"}}
    assert decode_position(progress) == StreamPosition(position.offsets, {"orders": "EjRWeJq83vD-3LqYdlQyEA"})


def test_progress_of_the_kafka_source_of_spark_has_no_topic_id() -> None:
    assert decode_position({"orders": {"0": 5, "1": 8}}) == StreamPosition({ORDERS_0: 5, ORDERS_1: 8}, {})


def test_progress_of_a_streaming_query_gives_the_offsets_of_another_query() -> None:
    progress = json.dumps(encode_position(StreamPosition({ORDERS_0: 5}, {"orders": "EjRWeJq83vD-3LqYdlQyEA"})))
    given = {"subscribe": "orders", "startingOffsets": progress}
    assert parse_options(given, is_streaming=False).starting == AtOffsets({ORDERS_0: 5})
