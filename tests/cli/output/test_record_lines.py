"""Records from lines of input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.cli.output.record_lines import InputRecord, parse_json_line, parse_text_line
from tierd.errors import RecordLineError
from tierd.log import NewRecord, Record, as_json_line

MAX_LONG = (1 << 63) - 1
blobs = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), blobs), max_size=3)


@given(
    st.builds(
        Record,
        offset=st.integers(0, MAX_LONG),
        timestamp_ms=st.integers(-1, MAX_LONG),
        timestamp_type=st.just("CreateTime"),
        key=blobs,
        value=blobs,
        headers=headers.map(tuple),
        leader_epoch=st.integers(-1, (1 << 31) - 1),
    )
)
def test_line_of_cat_is_parsed_to_its_record(record: Record) -> None:
    expected = NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
    found = parse_json_line(as_json_line(record).strip(), 1, 5)
    assert found == InputRecord(expected, record.offset, record.leader_epoch)


def test_line_with_only_a_key_or_a_value_is_a_record() -> None:
    assert parse_json_line(b'{"value": null}', 1, 5) == InputRecord(NewRecord(None, None, 5))
    assert parse_json_line(b'{"key": "YQ=="}', 1, 5) == InputRecord(NewRecord(b"a", None, 5))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        b'{"value": 7}',
        b'{"value": "%%%"}',
        '{"value": "é"}'.encode(),
        b'{"value": "YQ==", "headers": {}}',
        b'{"value": "YQ==", "headers": [["a"]]}',
        b'{"value": "YQ==", "headers": [["\\ud800", null]]}',
        b'{"value": "YQ==", "offset": -1}',
        b'{"value": "YQ==", "offset": true}',
        b'{"value": "YQ==", "timestamp": "now"}',
        b'{"value": "YQ==", "timestamp": 1e999}',
        b'{"value": "YQ==", "timestamp": 99999999999999999999}',
        b'{"value": "YQ==", "leaderEpoch": 2147483648}',
        b'{"value": "YQ==", "isControl": true}',
    ],
)
def test_malformed_line_is_an_error_with_its_number(line: bytes) -> None:
    with pytest.raises(RecordLineError, match="line 17: "):
        parse_json_line(line, 17, 5)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists), st.text())
def test_any_value_in_any_field_is_a_record_or_an_error(value: object, name: str) -> None:
    for field in ("key", "value", "headers", "timestamp", "offset", "leaderEpoch", "isControl", name):
        try:
            parse_json_line(json.dumps({"value": None, field: value}).encode(), 1, 5)
        except RecordLineError:
            continue


def test_text_line_is_key_tab_value() -> None:
    assert parse_text_line(b"k\tv\tw", 1, 5).record == NewRecord(b"k", b"v\tw", 5)
    assert parse_text_line(b"only", 1, 5).record == NewRecord(None, b"only", 5)
