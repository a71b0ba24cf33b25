r"""Metadata values to versioned bytes and back: one format byte, then one compact JSON object.

::

    0x01 {"start":0,"end":99,"max_ts":1700000000000,"broker":1,"event_ts":1700000000001,"size":4096,"state":1,
          "epochs":[[0,0]],"leader_epoch":3,"session":"…22 characters…","custom":"…base64…","txn_empty":true}

``custom`` and ``txn_empty`` may be absent (none; false: unknown or present), so may ``soft_delete`` (``[reason, wall
clock after which the objects go]`` of a segment that is being deleted and was readable), and so may a partition row's
``log_start_offset`` (never set), ``deletion`` (not being deleted), ``compacted_to`` (never compacted),
``recorded_log_start`` (the bucket has no record of the log start; -1: unknown), ``only_broker`` (several brokers have
claimed the partition, or nothing tells) and ``abandoned_epochs`` (none is known). Fields of a later tierd are kept when
a value is rewritten. A value that cannot be decoded names its key and is never skipped.
"""

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, cast
from uuid import UUID

from tierd.metadata.rows.newest_epochs import CopiedEpoch, NewestEpochs
from tierd.metadata.rows.partition_row import Claim, PartitionDelete, PartitionRow
from tierd.metadata.rows.value_fields import (
    INT64_MAX,
    decoded_value,
    encode_value,
    int_field,
    refuse,
    text_field,
    unknown_fields,
)
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

_STATES: Final = tuple(RemoteLogSegmentState)
_DELETE_STATES: Final = tuple(RemotePartitionDeleteState)
_SEGMENT_FIELDS: Final = frozenset(
    {
        *("start", "end", "max_ts", "broker", "event_ts", "size", "state", "epochs"),
        *("leader_epoch", "session", "custom", "txn_empty", "soft_delete"),
    }
)
_ROW_FIELDS: Final = frozenset(
    {
        *("topic", "revision", "leader_epoch", "broker", "session", "log_start", "log_start_offset", "deletion"),
        *("compacted_to", "recorded_log_start", "only_broker", "newest_epochs"),
        "abandoned_epochs",
    }
)
_REFERENCE: Final = re.compile(rb'\x01\{"id":"([A-Za-z0-9_-]{22})"\}').fullmatch
_session_from_text: Final = lru_cache(maxsize=1024)(uuid_from_text)  # few sessions, many segments: one object each


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
    return encode_value(body)


def decode_segment(
    key: str, value: bytes, segment: RemoteLogSegmentId
) -> tuple[RemoteLogSegmentMetadata, Mapping[str, object]]:
    """Decode the segment stored under ``key``, and the fields that only a later tierd knows.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, lambda body: (_segment_of(body, segment), unknown_fields(body, _SEGMENT_FIELDS)))


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
    if row.compacted_to is not None:
        body["compacted_to"] = row.compacted_to
    if row.recorded_log_start is not None:
        body["recorded_log_start"] = row.recorded_log_start
    if row.only_broker_id is not None:
        body["only_broker"] = row.only_broker_id
    if row.newest_epochs is not None:
        body["newest_epochs"] = _epochs_body(row.newest_epochs)
    if row.abandoned_epochs:
        body["abandoned_epochs"] = row.abandoned_epochs
    return encode_value(body)


def decode_row(key: str, value: bytes) -> PartitionRow:
    """Decode a partition row.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, _row_of)


def encode_reference(segment_id: UUID) -> bytes:
    """Encode a reference to the segment that an epoch finds from an offset on."""
    return encode_value({"id": uuid_to_text(segment_id)})


def decode_reference(key: str, value: bytes) -> str:
    """Decode a reference to the 22-character text of a segment id, which the caller looks up.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    if (found := _REFERENCE(value)) is not None:  # as ``encode_reference`` writes them; there are as many as segments
        return found[1].decode()
    return decoded_value(key, value, lambda body: text_field(body, "id"))


def encode_highest(offset: int) -> bytes:
    """Encode the largest offset ever finished in an epoch."""
    return encode_value({"offset": offset})


def decode_highest(key: str, value: bytes) -> int:
    """Decode the largest offset ever finished in an epoch.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, lambda body: int_field(body, "offset"))


def encode_mark() -> bytes:
    """Encode a row whose key says everything."""
    return encode_value({})


def encode_topic(topic: str) -> bytes:
    """Encode the topic name of an index row."""
    return encode_value({"topic": topic})


def decode_topic(key: str, value: bytes) -> str:
    """Decode the topic name of an index row.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, lambda body: text_field(body, "topic"))


def encode_deleting(topic: str, deletion: PartitionDelete, leader_epoch: int) -> bytes:
    """Encode the index row of a partition that is being deleted, or was."""
    return encode_value({"topic": topic, "leader_epoch": leader_epoch, **_deletion_body(deletion)})


def decode_deleting(key: str, value: bytes) -> tuple[str, PartitionDelete, int]:
    """Decode an index row of a deletion: topic name, state of the deletion, leader epoch of its last step.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(
        key, value, lambda body: (text_field(body, "topic"), _deletion_of(body), int_field(body, "leader_epoch"))
    )


def encode_identity(store_id: UUID) -> bytes:
    """Encode the random identity of a metadata store."""
    return encode_value({"store_id": uuid_to_text(store_id)})


def decode_identity(key: str, value: bytes) -> UUID:
    """Decode the random identity of a metadata store.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, lambda body: uuid_from_text(text_field(body, "store_id")))


def decode_body(key: str, value: bytes) -> dict[str, object]:
    """Decode any value to its fields, known or not, in their order.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(key, value, lambda body: body)


def _segment_of(body: dict[str, object], segment: RemoteLogSegmentId) -> RemoteLogSegmentMetadata:
    state = int_field(body, "state")
    custom = body.get("custom")
    start_offset = int_field(body, "start")
    return RemoteLogSegmentMetadata(
        segment=segment,
        start_offset=start_offset,
        end_offset=int_field(body, "end"),
        max_timestamp_ms=int_field(body, "max_ts"),
        broker_id=int_field(body, "broker"),
        event_timestamp_ms=int_field(body, "event_ts"),
        size_bytes=int_field(body, "size"),
        segment_leader_epochs=_epochs_of(body["epochs"], start_offset),
        leader_epoch=int_field(body, "leader_epoch"),
        session_id=_session_from_text(text_field(body, "session")),
        custom_metadata=None if custom is None else _custom_from_text(text_field(body, "custom")),
        state=_STATES[state] if 0 <= state < len(_STATES) else refuse(f"{state} is no segment state"),
        txn_index_empty=body.get("txn_empty", False) is True,
        soft_delete=_soft_delete_of(body["soft_delete"]) if "soft_delete" in body else None,
    )


def _soft_delete_of(pair: object) -> SoftDelete:
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int:
        return SoftDelete(pair[0], pair[1])
    return refuse(f"soft_delete is {pair!r}, not a reason and a time")


def _epochs_of(pairs: object, start_offset: int) -> tuple[EpochEntry, ...]:
    if not isinstance(pairs, list):
        refuse("epochs is no list")
    entries: list[EpochEntry] = []
    for epoch, first in pairs:
        if type(epoch) is not int or type(first) is not int or not 0 <= epoch < 2**31 or not 0 <= first <= INT64_MAX:
            refuse(f"epochs: {epoch!r} at {first!r} is no epoch entry")
        # Most segments lie in one epoch: its first offset is their start, and one int object serves both.
        entries.append(EpochEntry(epoch, start_offset if first == start_offset else first))
    return tuple(entries)


def _row_of(body: dict[str, object]) -> PartitionRow:
    log_start: int | None
    if "log_start_offset" in body:
        log_start = int_field(body, "log_start_offset")
    else:
        # As rows were written at first: 0 stood for "never set" too, and the next leader finds the same value again.
        log_start = (int_field(body, "log_start") or None) if "log_start" in body else None
    return PartitionRow(
        topic=text_field(body, "topic"),
        revision=int_field(body, "revision"),
        claim=Claim(
            int_field(body, "leader_epoch"), int_field(body, "broker"), uuid_from_text(text_field(body, "session"))
        ),
        log_start_offset=log_start,
        deletion=_deletion_of(body["deletion"]) if "deletion" in body else None,
        compacted_to=int_field(body, "compacted_to") if "compacted_to" in body else None,
        recorded_log_start=int_field(body, "recorded_log_start") if "recorded_log_start" in body else None,
        only_broker_id=int_field(body, "only_broker") if "only_broker" in body else None,
        newest_epochs=_newest_epochs_of(body["newest_epochs"]) if "newest_epochs" in body else None,
        abandoned_epochs=_abandoned_epochs_of(body.get("abandoned_epochs", [])),
        unknown=unknown_fields(body, _ROW_FIELDS),
    )


def _abandoned_epochs_of(epochs: object) -> tuple[int, ...]:
    if not isinstance(epochs, list) or any(type(epoch) is not int for epoch in epochs):
        return refuse(f"abandoned_epochs: {epochs!r} is no list of epochs")
    return tuple(epochs)


def _epochs_body(newest: NewestEpochs) -> dict[str, object]:
    return {"revision": newest.revision, "complete": newest.is_complete, "epochs": newest.epochs}


def _newest_epochs_of(fields: object) -> NewestEpochs:
    if not isinstance(fields, dict):
        return refuse("newest_epochs is no object")
    rows, is_complete = fields["epochs"], fields["complete"]
    if not isinstance(rows, list) or not isinstance(is_complete, bool):
        return refuse("newest_epochs is no list of epochs, and whether there are others")
    return NewestEpochs(int_field(fields, "revision"), tuple(map(_copied_epoch_of, rows)), is_complete)


def _copied_epoch_of(numbers: object) -> CopiedEpoch:
    if not isinstance(numbers, list) or len(numbers) != len(CopiedEpoch._fields):
        return refuse(f"newest_epochs: {numbers!r} is no epoch")
    epoch, *offsets = numbers
    if type(epoch) is not int or any(type(each) is not int for each in offsets if each is not None):
        refuse(f"newest_epochs: {numbers!r} is no epoch")
    return CopiedEpoch(epoch, *offsets)


def _deletion_body(deletion: PartitionDelete) -> dict[str, object]:
    return {
        "state": deletion.state.value,
        "event_ts": deletion.event_timestamp_ms,
        "broker": deletion.broker_id,
    }


def _deletion_of(fields: object) -> PartitionDelete:
    if not isinstance(fields, dict):
        refuse("deletion is no object")
    body = cast("dict[str, object]", fields)
    state = int_field(body, "state")
    if not 0 <= state < len(_DELETE_STATES):
        refuse(f"{state} is no partition delete state")
    return PartitionDelete(_DELETE_STATES[state], int_field(body, "event_ts"), int_field(body, "broker"))
