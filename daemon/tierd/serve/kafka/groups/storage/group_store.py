"""GroupStore: reads of groups, and the claim with which a coordinator takes one over."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import BackendUnavailableError, MetadataDecodeError, PreconditionFailedError
from tierd.metadata import Batch, DeadlineKeyValueStore, Expect, KeyValueStore, MetadataKeyFactory, Put
from tierd.model import uuid_from_text
from tierd.serve.kafka.groups.protocol.durable_group import StaticMember
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_rows import (
    GroupRow,
    decode_group,
    decode_offset,
    decode_static,
    encode_group,
)

_ATTEMPTS: Final = 5  # each time another coordinator has changed the row in between
_KEYS_PER_READ: Final = 1000
_ROWS_PER_PIECE: Final = 200

_log = structlog.get_logger(__name__)
_K = TypeVar("_K")


class GroupStore:
    """Groups of one cluster. Every call of the metadata store ends within ``timeout_s``.

    All calls raise ``BackendUnavailableError`` where the store does not answer, and ``MetadataDecodeError`` for a row
    that cannot be understood.
    """

    def __init__(self, store: KeyValueStore, keys: MetadataKeyFactory, *, timeout_s: float, clock: Clock) -> None:
        self.values = DeadlineKeyValueStore(store, timeout_s=timeout_s, clock=clock)
        self.keys = keys

    async def row(self, group: str) -> GroupRow | None:
        """Return the row of a group; None for a group that does not exist."""
        return (await self.rows([group])).get(group)

    async def rows(self, groups: Iterable[str]) -> dict[str, GroupRow]:
        """Return the rows of those groups that exist."""
        found = await self._many({group: self.keys.group(group) for group in groups})
        return {group: _named(group, decode_group(key, value)) for group, (key, value) in found.items()}

    async def all_rows(self) -> list[GroupRow]:
        """Return the rows of all groups; one that cannot be understood is left out and logged."""
        rows: list[GroupRow] = []
        async for key, value in _in_pieces(await self.values.scan(self.keys.groups_prefix)):
            try:
                rows.append(decode_group(key, value))
            except MetadataDecodeError as error:
                _log.warning("group_row_damaged", key=key, error=str(error))
        return rows

    async def offsets(self, group: str) -> dict[OffsetKey, GroupOffset]:
        """Return all committed offsets of a group, ascending by topic id and partition."""
        prefix = self.keys.group_offsets_prefix(group)
        pairs = _in_pieces(await self.values.scan(prefix))
        return {_offset_key(prefix, key): decode_offset(key, value) async for key, value in pairs}

    async def some_offsets(
        self, group: str, wanted: Iterable[OffsetKey]
    ) -> tuple[GroupRow | None, dict[OffsetKey, GroupOffset]]:
        """Return the row of a group, and those committed offsets that exist."""
        keys: dict[OffsetKey | None, str] = {None: self.keys.group(group)}
        keys |= {each: self.keys.group_offset(group, *each) for each in wanted}
        found = await self._many(keys)
        row = _named(group, decode_group(*found[None])) if None in found else None
        pairs = _in_pieces(found.items())
        return row, {each: decode_offset(*pair) async for each, pair in pairs if each is not None}

    async def static_members(self, group: str) -> dict[str, StaticMember]:
        """Return the static members of a group by instance id."""
        pairs = await self.values.scan(self.keys.group_static_prefix(group))
        members = [decode_static(key, value) for key, value in pairs]
        return {each.instance_id: each for each in members}

    async def claim(
        self, group: str, *, owner_id: int, session_id: UUID, now_ms: int, may_create: bool
    ) -> GroupRow | None:
        """Take a group over from any other coordinator, which can write nothing more to it; return its row.

        Args:
            group: id of the group.
            owner_id: node id of the new coordinator.
            session_id: never used before.
            now_ms: a new group is empty since then.
            may_create: make a group that does not exist; otherwise return None.

        Raises:
            OutcomeUnknownError: the claim may hold; claim the group again, with another session.
        """
        key = self.keys.group(group)
        value = await self.values.get(key)
        for _ in range(_ATTEMPTS):
            if value is not None:
                stored = _named(group, decode_group(key, value))
                row = replace(stored, owner_id=owner_id, session_id=session_id, revision=stored.revision + 1)
            elif may_create:
                row = GroupRow(group=group, owner_id=owner_id, session_id=session_id, revision=0, empty_since_ms=now_ms)
            else:
                return None
            try:
                await self.values.apply(Batch([Put(key, encode_group(row))], [Expect(key, value)]))
            except PreconditionFailedError as error:
                value = error.actual
            else:
                return row
        raise BackendUnavailableError(f"group {group!r} changed {_ATTEMPTS} times while it was taken over")

    async def _many(self, keys: Mapping[_K, str]) -> dict[_K, tuple[str, bytes]]:
        wanted, found = list(keys.values()), dict[str, bytes]()
        for start in range(0, len(wanted), _KEYS_PER_READ):
            found |= await self.values.get_many(wanted[start : start + _KEYS_PER_READ])
        return {each: (key, found[key]) for each, key in keys.items() if key in found}


async def _in_pieces(rows: Iterable[_K]) -> AsyncIterator[_K]:
    """Yield rows; the event loop goes on in between."""
    for count, row in enumerate(rows):
        if count and not count % _ROWS_PER_PIECE:
            await asyncio.sleep(0)
        yield row


def _named(group: str, row: GroupRow) -> GroupRow:
    if row.group != group:
        raise MetadataDecodeError(
            f"the row of group {group!r} is of group {row.group!r}", remedy="restore the store from a backup"
        )
    return row


def _offset_key(prefix: str, key: str) -> OffsetKey:
    topic_id, _, partition = key.removeprefix(prefix).partition("/")
    try:
        return OffsetKey(uuid_from_text(topic_id), int(partition))
    except ValueError as error:
        raise MetadataDecodeError(f"{key}: {error}", remedy="restore the store from a backup") from error
