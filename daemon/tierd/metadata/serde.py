r"""Metadata values to versioned bytes and back: one format byte, then one compact JSON object.

::

    0x01 {"start":0,"end":99,"max_ts":1700000000000,"broker":1,"event_ts":1700000000001,"size":4096,"state":1,
          "epochs":[[0,0]],"leader_epoch":3,"session":"…22 characters…","custom":"…base64…","txn_empty":true}

``custom`` and ``txn_empty`` may be absent (none; false: unknown or present), so may ``soft_delete`` (``[reason, wall
clock after which the objects go]`` of a segment that is being deleted and was readable), and so may a partition row's
``log_start_offset`` (never set) and ``deletion`` (not being deleted). Fields of a later tierd are kept when a value is
rewritten. A value that cannot be decoded names its key and is never skipped.
"""

import base64
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NoReturn, TypeVar, cast
from uuid import UUID

from tierd.errors import MetadataDecodeError
from tierd.metadata.row import Claim, PartitionDelete, PartitionRow
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    SoftDelete,
    uuid_from_text,
    uuid_to_text,
)

FORMAT: Final = 1
_FORMAT_BYTE: Final = bytes([FORMAT])
_INT64_MAX: Final = 2**63 - 1
_STATES: Final = tuple(RemoteLogSegmentState)
_DELETE_STATES: Final = tuple(RemotePartitionDeleteState)
_SEGMENT_FIELDS: Final = frozenset(
    {
        *("start", "end", "max_ts", "broker", "event_ts", "size", "state", "epochs"),
        *("leader_epoch", "session", "custom", "txn_empty", "soft_delete"),
    }
)
_ROW_FIELDS: Final = frozenset(
    {"topic", "revision", "leader_epoch", "broker", "session", "log_start", "log_start_offset", "deletion"}
)
_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_decode_json: Final = json.JSONDecoder().raw_decode  # json.loads looks for white space, twice per row
_session_from_text: Final = lru_cache(maxsize=1024)(uuid_from_text)  # few sessions, many segments: one object each
_T = TypeVar("_T")


@lru_cache(maxsize=1024)  # many segments share a key prefix: one object each
def _custom_from_text(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def encode_segment(metadata: RemoteLogSegmentMetadata, unknown: Mapping[str, object] | None = None) -> bytes:
    """Encode a segment; its id is in the key. ``unknown`` holds fields of a later tierd."""
    body: dict[str, object] = {
        **(unknown or {}),
        "start": metadata.start_offset,
        "end": metadata.end_offset,
        "max_ts": metadata.max_timestamp_ms,
        "broker": metadata.broker_id,
        "event_ts": metadata.event_timestamp_ms,
        "size": metadata.size_bytes,
        "state": metadata.state.value,
        "epochs": metadata.segment_leader_epochs,
        "leader_epoch": metadata.leader_epoch,
        "session": uuid_to_text(metadata.session_id),
    }
    if metadata.custom_metadata is not None:
        body["custom"] = base64.b64encode(metadata.custom_metadata).decode()
    if metadata.txn_index_empty:
        body["txn_empty"] = True
    if metadata.soft_delete is not None:
        body["soft_delete"] = [metadata.soft_delete.reason, metadata.soft_delete.delete_after_ms]
    return _encode(body)


def decode_segment(
    key: str, value: bytes, segment: RemoteLogSegmentId
) -> tuple[RemoteLogSegmentMetadata, Mapping[str, object]]:
    """Decode the segment stored under ``key``, and the fields that only a later tierd knows.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: (_segment_of(body, segment), _unknown(body, _SEGMENT_FIELDS)))


def encode_row(row: PartitionRow) -> bytes:
    """Encode a partition row."""
    body: dict[str, object] = {
        **row.unknown,
        "topic": row.topic,
        "revision": row.revision,
        "leader_epoch": row.claim.leader_epoch,
        "broker": row.claim.broker_id,
        "session": uuid_to_text(row.claim.session_id),
    }
    if row.log_start_offset is not None:
        body["log_start_offset"] = row.log_start_offset
    if row.deletion is not None:
        body["deletion"] = _deletion_body(row.deletion)
    return _encode(body)


def decode_row(key: str, value: bytes) -> PartitionRow:
    """Decode a partition row.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, _row_of)


def encode_reference(segment_id: UUID) -> bytes:
    """Encode which segment an epoch finds from an offset on."""
    return _encode({"id": uuid_to_text(segment_id)})


def decode_reference(key: str, value: bytes) -> str:
    """Decode a reference to the 22-character text of a segment id, which the caller looks up.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: _text(body, "id"))


def encode_highest(offset: int) -> bytes:
    """Encode the largest offset ever finished in an epoch."""
    return _encode({"offset": offset})


def decode_highest(key: str, value: bytes) -> int:
    """Decode the largest offset ever finished in an epoch.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: _int(body, "offset"))


def encode_mark() -> bytes:
    """Encode a row whose key says everything."""
    return _encode({})


def encode_topic(topic: str) -> bytes:
    """Encode the topic name of an index row."""
    return _encode({"topic": topic})


def decode_topic(key: str, value: bytes) -> str:
    """Decode the topic name of an index row.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: _text(body, "topic"))


def encode_deleting(topic: str, deletion: PartitionDelete, leader_epoch: int) -> bytes:
    """Encode the index row of a partition that is being deleted, or was."""
    return _encode({"topic": topic, "leader_epoch": leader_epoch, **_deletion_body(deletion)})


def decode_deleting(key: str, value: bytes) -> tuple[str, PartitionDelete, int]:
    """Decode the topic name of such an index row, how far the deletion has come, and under which leader epoch.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: (_text(body, "topic"), _deletion_of(body), _int(body, "leader_epoch")))


def encode_identity(store_id: UUID) -> bytes:
    """Encode the random identity of a metadata store."""
    return _encode({"store_id": uuid_to_text(store_id)})


def decode_identity(key: str, value: bytes) -> UUID:
    """Decode the random identity of a metadata store.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: uuid_from_text(_text(body, "store_id")))


def encode_body(body: Mapping[str, object]) -> bytes:
    """Encode the fields of any value, as ``decode_body`` gave them."""
    return _encode(body)


def decode_body(key: str, value: bytes) -> dict[str, object]:
    """Decode any value to its fields, known or not, in their order.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return _decoded(key, value, lambda body: body)


def _segment_of(body: dict[str, object], segment: RemoteLogSegmentId) -> RemoteLogSegmentMetadata:
    state = _int(body, "state")
    custom = body.get("custom")
    start_offset = _int(body, "start")
    return RemoteLogSegmentMetadata(
        segment=segment,
        start_offset=start_offset,
        end_offset=_int(body, "end"),
        max_timestamp_ms=_int(body, "max_ts"),
        broker_id=_int(body, "broker"),
        event_timestamp_ms=_int(body, "event_ts"),
        size_bytes=_int(body, "size"),
        segment_leader_epochs=_epochs_of(body["epochs"], start_offset),
        leader_epoch=_int(body, "leader_epoch"),
        session_id=_session_from_text(_text(body, "session")),
        custom_metadata=None if custom is None else _custom_from_text(_text(body, "custom")),
        state=_STATES[state] if 0 <= state < len(_STATES) else _refuse(f"{state} is no segment state"),
        txn_index_empty=body.get("txn_empty", False) is True,
        soft_delete=_soft_delete_of(body["soft_delete"]) if "soft_delete" in body else None,
    )


def _soft_delete_of(pair: object) -> SoftDelete:
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int:
        return SoftDelete(pair[0], pair[1])
    return _refuse(f"soft_delete is {pair!r}, not a reason and a time")


def _epochs_of(pairs: object, start_offset: int) -> tuple[EpochEntry, ...]:
    if not isinstance(pairs, list):
        _refuse("epochs is no list")
    entries: list[EpochEntry] = []
    for epoch, first in pairs:
        if type(epoch) is not int or type(first) is not int or not 0 <= epoch < 2**31 or not 0 <= first <= _INT64_MAX:
            _refuse(f"epochs: {epoch!r} at {first!r} is no epoch entry")
        # Most segments lie in one epoch: its first offset is their start, and one int object serves both.
        entries.append(EpochEntry(epoch, start_offset if first == start_offset else first))
    return tuple(entries)


def _row_of(body: dict[str, object]) -> PartitionRow:
    log_start: int | None
    if "log_start_offset" in body:
        log_start = _int(body, "log_start_offset")
    else:
        # As rows were written at first: 0 stood for "never set" too, and the next leader finds the same value again.
        log_start = (_int(body, "log_start") or None) if "log_start" in body else None
    return PartitionRow(
        topic=_text(body, "topic"),
        revision=_int(body, "revision"),
        claim=Claim(_int(body, "leader_epoch"), _int(body, "broker"), uuid_from_text(_text(body, "session"))),
        log_start_offset=log_start,
        deletion=_deletion_of(body["deletion"]) if "deletion" in body else None,
        unknown=_unknown(body, _ROW_FIELDS),
    )


def _deletion_body(deletion: PartitionDelete) -> dict[str, object]:
    return {
        "state": deletion.state.value,
        "event_ts": deletion.event_timestamp_ms,
        "broker": deletion.broker_id,
    }


def _deletion_of(fields: object) -> PartitionDelete:
    if not isinstance(fields, dict):
        _refuse("deletion is no object")
    body = cast("dict[str, object]", fields)
    state = _int(body, "state")
    if not 0 <= state < len(_DELETE_STATES):
        _refuse(f"{state} is no partition delete state")
    return PartitionDelete(_DELETE_STATES[state], _int(body, "event_ts"), _int(body, "broker"))


def _unknown(body: dict[str, object], known: frozenset[str]) -> Mapping[str, object]:
    return {} if body.keys() <= known else {name: value for name, value in body.items() if name not in known}


def _int(body: dict[str, object], name: str) -> int:
    value = body[name]
    if type(value) is int and -1 <= value <= _INT64_MAX:
        return value
    return _refuse(f"{name} is {value!r}, not an integer of 64 bits")


def _text(body: dict[str, object], name: str) -> str:
    value = body[name]
    return value if isinstance(value, str) else _refuse(f"{name} is {value!r}, not a text")


def _refuse(problem: str) -> NoReturn:
    raise ValueError(problem)


def _encode(body: Mapping[str, object]) -> bytes:
    return _FORMAT_BYTE + _encode_json(body).encode()


def _decoded(key: str, value: bytes, convert: Callable[[dict[str, object]], _T]) -> _T:
    if value[:1] != _FORMAT_BYTE:
        found = f"format {value[0]}" if value else "an empty value"
        raise MetadataDecodeError(
            f"{key}: {found}, this tierd reads format {FORMAT}",
            remedy="upgrade tierd if a later one wrote this store, otherwise restore the store from a backup",
        )
    try:
        text = value[1:].decode()
        if not text.startswith("{"):
            _refuse("not a JSON object")
        body, end = _decode_json(text)
        if end != len(text):
            _refuse("something follows the JSON object")
        return convert(cast("dict[str, object]", body))
    except KeyError as error:
        problem = f"the field {error} is missing"
    except (ValueError, TypeError, RecursionError) as error:
        problem = str(error) or type(error).__name__
    raise MetadataDecodeError(f"{key}: {problem}", remedy="restore the metadata store from a backup")
