"""Rows of groups in the metadata store, and their encoding.

::

    groups/<group>           {"group":…,"owner":…,"session":…,"revision":…,"generation":…,
                              "protocol_type":…,"empty_ms":…}
    group-static/<group>/…   {"instance":…,"member":…,"client_id":…,"host":…,"session_ms":…,"rebalance_ms":…,
                              "protocols":[[name, base64],…]}
    group-offsets/<group>/…  {"topic":…,"offset":…,"leader_epoch":…,"metadata":…,"commit_ms":…,"expire_ms":…}

The first one is the claim. Every batch on the group has the whole row as its precondition, and every claim and every
new generation changes the row: a coordinator that has lost the group can write nothing more.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.metadata import decoded_value, encode_value, int_field, text_field
from tierd.model import uuid_from_text, uuid_to_text
from tierd.serve.kafka.groups.protocol.durable_group import StaticMember
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset

_MAX_GENERATION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """The row of a group.

    Attributes:
        owner_id: node id of the endpoint that coordinates the group, or did.
        session_id: of the claim; no two claims have the same.
        revision: grows with every write of the row.
        generation: no member ever heard of a higher one.
        protocol_type: None for a group that never had members.
        empty_since_ms: None while the group has members.
    """

    group: str
    owner_id: int
    session_id: UUID
    revision: int
    generation: int = 0
    protocol_type: str | None = None
    empty_since_ms: int | None = None


def encode_group(row: GroupRow) -> bytes:
    """Encode the row of a group."""
    body: dict[str, object] = {
        "group": row.group,
        "owner": row.owner_id,
        "session": uuid_to_text(row.session_id),
        "revision": row.revision,
        "generation": row.generation,
    }
    if row.protocol_type is not None:
        body["protocol_type"] = row.protocol_type
    if row.empty_since_ms is not None:
        body["empty_ms"] = row.empty_since_ms
    return encode_value(body)


def decode_group(key: str, value: bytes) -> GroupRow:
    """Decode the row of a group.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """

    def convert(body: dict[str, object]) -> GroupRow:
        generation = int_field(body, "generation")
        if not 0 <= generation <= _MAX_GENERATION:
            raise ValueError(f"{generation} is no generation")
        return GroupRow(
            group=text_field(body, "group"),
            owner_id=int_field(body, "owner"),
            session_id=uuid_from_text(text_field(body, "session")),
            revision=int_field(body, "revision"),
            generation=generation,
            protocol_type=text_field(body, "protocol_type") if "protocol_type" in body else None,
            empty_since_ms=int_field(body, "empty_ms") if "empty_ms" in body else None,
        )

    return decoded_value(key, value, convert)


def encode_static(member: StaticMember) -> bytes:
    """Encode a static member."""
    return encode_value(
        {
            "instance": member.instance_id,
            "member": member.member_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "session_ms": round(member.session_timeout_s * 1000),
            "rebalance_ms": round(member.rebalance_timeout_s * 1000),
            "protocols": [[name, base64.b64encode(data).decode()] for name, data in member.protocols],
        }
    )


def decode_static(key: str, value: bytes) -> StaticMember:
    """Decode a static member.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """

    def convert(body: dict[str, object]) -> StaticMember:
        return StaticMember(
            instance_id=text_field(body, "instance"),
            member_id=text_field(body, "member"),
            client_id=text_field(body, "client_id"),
            client_host=text_field(body, "host"),
            session_timeout_s=int_field(body, "session_ms") / 1000,
            rebalance_timeout_s=int_field(body, "rebalance_ms") / 1000,
            protocols=_protocols_of(body["protocols"]),
        )

    return decoded_value(key, value, convert)


def encode_offset(committed: GroupOffset) -> bytes:
    """Encode a committed offset; its partition is in the key."""
    body: dict[str, object] = {
        "topic": committed.topic,
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_ms": committed.commit_ms,
    }
    if committed.expire_ms is not None:
        body["expire_ms"] = committed.expire_ms
    return encode_value(body)


def decode_offset(key: str, value: bytes) -> GroupOffset:
    """Decode a committed offset.

    Raises:
        MetadataDecodeError: the value cannot be understood; names the key.
    """
    return decoded_value(
        key,
        value,
        lambda body: GroupOffset(
            topic=text_field(body, "topic"),
            offset=int_field(body, "offset"),
            leader_epoch=int_field(body, "leader_epoch"),
            metadata=text_field(body, "metadata"),
            commit_ms=int_field(body, "commit_ms"),
            expire_ms=int_field(body, "expire_ms") if "expire_ms" in body else None,
        ),
    )


def _protocols_of(pairs: object) -> tuple[tuple[str, bytes], ...]:
    if not isinstance(pairs, list):
        raise TypeError("protocols is no list")
    protocols: list[tuple[str, bytes]] = []
    for name, text in pairs:
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("protocols: a name or its data is no text")
        try:
            protocols.append((name, base64.b64decode(text, validate=True)))
        except binascii.Error as error:
            raise ValueError(f"protocols: {error}") from error
    return tuple(protocols)
