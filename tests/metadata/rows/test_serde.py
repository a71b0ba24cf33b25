import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION, segment
from tierd.errors import MetadataDecodeError
from tierd.metadata import Claim, PartitionRow
from tierd.metadata.rows import serde
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    uuid_to_text,
)

offsets = st.integers(0, 2**63 - 1)
times = st.integers(-1, 2**63 - 1)
epochs = st.integers(0, 2**31 - 1)


@st.composite
def segments(draw: st.DrawFn) -> RemoteLogSegmentMetadata:
    start, end = sorted((draw(offsets), draw(offsets)))
    of_segment = sorted(draw(st.sets(epochs, min_size=1, max_size=5)))
    begins = sorted(draw(st.lists(st.integers(start, end), min_size=len(of_segment), max_size=len(of_segment))))
    return RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(PARTITION, draw(st.uuids())),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=draw(times),
        broker_id=draw(epochs),
        event_timestamp_ms=draw(times),
        size_bytes=draw(epochs),
        segment_leader_epochs=tuple(map(EpochEntry, of_segment, begins)),
        leader_epoch=draw(epochs),
        session_id=draw(st.uuids()),
        custom_metadata=draw(st.none() | st.binary(max_size=200)),
        state=draw(st.sampled_from(RemoteLogSegmentState)),
        txn_index_empty=draw(st.booleans()),
        soft_delete=draw(st.none() | st.builds(SoftDelete, st.text(max_size=20), times)),
    )


@given(metadata=segments())
def test_a_segment_is_decoded_to_what_was_encoded(metadata: RemoteLogSegmentMetadata) -> None:
    assert serde.decode_segment("k", serde.encode_segment(metadata), metadata.segment) == (metadata, {})


@given(
    row=st.builds(
        PartitionRow,
        topic=st.text(max_size=20),
        revision=offsets,
        claim=st.builds(Claim, epochs, epochs, st.uuids()),
        log_start_offset=st.none() | offsets,
        compacted_to=st.none() | offsets,
        abandoned_epochs=st.lists(epochs, max_size=3).map(tuple),
    )
)
def test_a_partition_row_is_decoded_to_what_was_encoded(row: PartitionRow) -> None:
    assert serde.decode_row("k", serde.encode_row(row)) == row
    assert serde.encode_row(serde.decode_row("k", serde.encode_row(row))) == serde.encode_row(row)


def body(value: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(value[1:])
    return found


def value_of(fields: dict[str, object]) -> bytes:
    return b"\x01" + json.dumps(fields).encode()


def test_fields_of_a_later_tierd_are_kept() -> None:
    metadata = segment(0, 9)
    stored = value_of({**body(serde.encode_segment(metadata)), "later": {"a": [1]}, "more": None})
    decoded, unknown = serde.decode_segment("k", stored, metadata.segment)
    assert decoded == metadata
    assert unknown == {"later": {"a": [1]}, "more": None}
    assert body(serde.encode_segment(decoded, unknown)) == body(stored)

    row = PartitionRow(topic="t", revision=1, claim=Claim(1, 2, UUID(int=3)))
    stored = value_of({**body(serde.encode_row(row)), "later": 1})
    assert body(serde.encode_row(serde.decode_row("k", stored))) == body(stored)


@pytest.mark.parametrize("stored", [3, [3, "4"], [True], None])
def test_row_whose_abandoned_epochs_are_no_epochs_is_refused(stored: object) -> None:
    fields = body(serde.encode_row(PartitionRow(topic="t", revision=1, claim=Claim(1, 2, UUID(int=3)))))
    assert "abandoned_epochs" not in fields
    with pytest.raises(MetadataDecodeError, match="the/key"):
        serde.decode_row("the/key", value_of({**fields, "abandoned_epochs": stored}))


def test_unknown_field_does_not_override_a_known_one() -> None:
    metadata = segment(0, 9)
    assert body(serde.encode_segment(metadata, {"start": 5}))["start"] == 0


@pytest.mark.spec("remote-tiering 19")
def test_segment_without_the_field_may_have_a_transaction_index() -> None:
    metadata = segment(0, 9, txn_index_empty=True)
    fields = body(serde.encode_segment(metadata))
    del fields["txn_empty"]
    assert serde.decode_segment("k", value_of(fields), metadata.segment)[0].txn_index_empty is False


DECODERS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (serde.encode_segment(segment(0, 9)), lambda v: serde.decode_segment("the/key", v, segment(0, 9).segment)),
    (
        serde.encode_row(PartitionRow(topic="t", revision=1, claim=Claim(1, 2, UUID(int=3)))),
        lambda v: serde.decode_row("the/key", v),
    ),
    (serde.encode_reference(UUID(int=1)), lambda v: serde.decode_reference("the/key", v)),
    (serde.encode_highest(4), lambda v: serde.decode_highest("the/key", v)),
    (serde.encode_topic("t"), lambda v: serde.decode_topic("the/key", v)),
    (serde.encode_identity(UUID(int=1)), lambda v: serde.decode_identity("the/key", v)),
]


@pytest.mark.spec("remote-tiering 20")
@pytest.mark.parametrize("trailing", [b"x", b" ", b"\n", b"\0", b"}", b"{}"])
@pytest.mark.parametrize(("value", "decode"), DECODERS)
def test_a_trailing_byte_is_an_error_that_names_the_key(
    value: bytes, decode: Callable[[bytes], object], trailing: bytes
) -> None:
    decode(value)
    with pytest.raises(MetadataDecodeError, match="the/key"):
        decode(value + trailing)


@pytest.mark.parametrize(("value", "decode"), DECODERS)
def test_every_shorter_value_is_an_error_that_names_the_key(value: bytes, decode: Callable[[bytes], object]) -> None:
    for length in range(len(value)):
        with pytest.raises(MetadataDecodeError, match="the/key"):
            decode(value[:length])


@pytest.mark.parametrize(("value", "decode"), DECODERS)
def test_another_format_is_refused_with_the_next_step(value: bytes, decode: Callable[[bytes], object]) -> None:
    with pytest.raises(MetadataDecodeError, match="format 2, this tierd reads format 1") as caught:
        decode(b"\x02" + value[1:])
    assert "upgrade" in caught.value.remedy


@given(value=st.binary())
@pytest.mark.parametrize("decode", [decode for _, decode in DECODERS])
def test_any_bytes_are_a_decode_error(decode: Callable[[bytes], object], value: bytes) -> None:
    for candidate in (value, b"\x01" + value, b"\x01{" + value + b"}", b"\x01{" + b'"a":[' * 100_000 + b"}"):
        with pytest.raises(MetadataDecodeError):
            decode(candidate)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
json_values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))
FIELDS = [
    *("start", "end", "max_ts", "broker", "event_ts", "size", "state", "epochs"),
    *("leader_epoch", "session", "custom", "txn_empty"),
]


@given(name=st.sampled_from(FIELDS), wrong=json_values)
def test_field_of_another_type_is_a_decode_error_or_ignored(name: str, wrong: object) -> None:
    metadata = segment(0, 9, custom_metadata=b"x")
    fields = {**body(serde.encode_segment(metadata)), name: wrong}
    try:
        decoded, _ = serde.decode_segment("the/key", value_of(fields), metadata.segment)
    except MetadataDecodeError as error:
        assert "the/key" in str(error)  # noqa: PT017  either outcome is right
    else:
        again = serde.encode_segment(decoded)
        assert serde.decode_segment("the/key", again, metadata.segment)[0] == decoded


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in {"custom", "txn_empty"}])
def test_a_missing_field_is_named(name: str) -> None:
    metadata = segment(0, 9)
    fields = body(serde.encode_segment(metadata))
    del fields[name]
    with pytest.raises(MetadataDecodeError, match=f"'{name}' is missing"):
        serde.decode_segment("k", value_of(fields), metadata.segment)


@pytest.mark.parametrize("state", [-1, 4, True])
def test_an_unknown_state_is_refused(state: object) -> None:
    metadata = segment(0, 9)
    fields = {**body(serde.encode_segment(metadata)), "state": state}
    with pytest.raises(MetadataDecodeError, match="state"):
        serde.decode_segment("k", value_of(fields), metadata.segment)


def test_stored_segment_has_the_documented_bytes() -> None:
    metadata = segment(0, 99, 3, session_id=UUID(int=1), custom_metadata=b"key", txn_index_empty=True)
    assert serde.encode_segment(metadata) == (
        b'\x01{"start":0,"end":99,"max_ts":-1,"broker":1,"event_ts":1700000000000,"size":1024,"state":0,'
        b'"epochs":[[3,0]],"leader_epoch":5,"session":"AAAAAAAAAAAAAAAAAAAAAQ","custom":"a2V5","txn_empty":true}'
    )


@pytest.mark.parametrize(("stored", "means"), [(0, None), (40, 40)])
def test_row_of_the_first_format_is_read_and_written_in_the_present_one(stored: int, means: int | None) -> None:
    session = uuid_to_text(UUID(int=1))
    fields = f'"topic":"orders","revision":3,"leader_epoch":0,"broker":1,"session":"{session}","log_start":{stored}'
    row = serde.decode_row("k", f"\x01{{{fields}}}".encode())
    assert (row.log_start_offset, row.unknown) == (means, {})
    assert serde.decode_row("k", serde.encode_row(row)) == row


@pytest.mark.parametrize("only_broker_id", [None, 0, 7])
def test_only_broker_of_a_partition_is_decoded_as_it_was_encoded(only_broker_id: int | None) -> None:
    row = PartitionRow(topic="orders", revision=1, claim=Claim(0, 1, UUID(int=1)), only_broker_id=only_broker_id)
    assert serde.decode_row("k", serde.encode_row(row)) == row


def test_log_start_of_zero_differs_from_an_unset_one() -> None:
    row = PartitionRow(topic="orders", revision=1, claim=Claim(0, 1, UUID(int=1)))
    assert serde.decode_row("k", serde.encode_row(row)).log_start_offset is None
    at_zero = replace(row, log_start_offset=0)
    assert serde.decode_row("k", serde.encode_row(at_zero)).log_start_offset == 0


@given(st.text('AZaz09-_+/=\\"\n', min_size=20, max_size=24) | st.uuids().map(uuid_to_text), st.booleans())
def test_reference_of_any_text_is_decoded_as_json_has_it(text: str, is_compact: bool) -> None:
    body = json.dumps({"id": text}, separators=(",", ":") if is_compact else None)
    assert serde.decode_reference("the/key", b"\x01" + body.encode()) == text


@given(st.binary(max_size=40))
def test_reference_that_is_no_json_is_refused(tail: bytes) -> None:
    with pytest.raises(MetadataDecodeError):
        serde.decode_reference("the/key", serde.encode_reference(UUID(int=1))[:-1] + b"!" + tail)
