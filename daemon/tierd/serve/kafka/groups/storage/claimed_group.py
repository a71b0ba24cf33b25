"""ClaimedGroup: one group that this coordinator has claimed, and its writes, each with the claim as precondition."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from tierd.errors import BackendUnavailableError, MetadataError, PreconditionFailedError
from tierd.metadata import Batch, Delete, DeletePrefix, Expect, Put
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup, StaticMember
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_rows import GroupRow, encode_group, encode_offset, encode_static
from tierd.serve.kafka.groups.storage.group_store import GroupStore

_Write: TypeAlias = Put | Delete | DeletePrefix

_ATTEMPTS: Final = 5


class GroupClaimLostError(MetadataError):
    """Another coordinator has claimed the group, or it was deleted; nothing was written."""


class ClaimedGroup:
    """Content of a group's rows, as this coordinator has read and written them. One call at a time.

    Every write may raise ``BackendUnavailableError``: nothing was written; ``OutcomeUnknownError``: the rows may have
    been written, or may still be, so that ``claim_again`` has to come first; ``GroupClaimLostError``.
    """

    def __init__(
        self,
        store: GroupStore,
        row: GroupRow,
        static_members: Mapping[str, StaticMember],
        offsets: Mapping[OffsetKey, GroupOffset],
    ) -> None:
        self._store = store
        self._row = row
        self._static = dict(static_members)
        self._offsets: dict[OffsetKey, GroupOffset] = {}
        self.size_bytes = 0
        """About the bytes of the committed offsets in memory."""
        self._replace(offsets, ())

    @classmethod
    async def claim(
        cls, store: GroupStore, group: str, *, owner_id: int, session_id: UUID, now_ms: int, may_create: bool
    ) -> "ClaimedGroup | None":
        """Claim a group, then read it; None where it does not exist and may not be created.

        Raises:
            BackendUnavailableError: the store did not answer; the group may be claimed.
            OutcomeUnknownError: the same.
            MetadataDecodeError: a row that cannot be understood.
        """
        row = await store.claim(group, owner_id=owner_id, session_id=session_id, now_ms=now_ms, may_create=may_create)
        if row is None:
            return None
        return cls(store, row, await store.static_members(group), await store.offsets(group))

    @property
    def group(self) -> str:
        """Return the id of the group."""
        return self._row.group

    @property
    def row(self) -> GroupRow:
        """Return the row as it was written last."""
        return self._row

    @property
    def durable(self) -> DurableGroup:
        """Return the part of the rows that the protocol knows of."""
        static = tuple(self._static[each] for each in sorted(self._static))
        return DurableGroup(self._row.generation, self._row.protocol_type, self._row.empty_since_ms, static)

    @property
    def offsets(self) -> Mapping[OffsetKey, GroupOffset]:
        """Return the committed offsets as they are stored."""
        return MappingProxyType(self._offsets)

    async def store(self, durable: DurableGroup) -> None:
        """Write generation, state and static members."""
        row = replace(
            self._row,
            revision=self._row.revision + 1,
            generation=durable.generation,
            protocol_type=durable.protocol_type,
            empty_since_ms=durable.empty_since_ms,
        )
        static = {each.instance_id: each for each in durable.static_members}
        writes: list[_Write] = [Put(self._key, encode_group(row))]
        keys = self._store.keys
        writes += (Delete(keys.group_static(self.group, gone)) for gone in self._static.keys() - static.keys())
        writes += (
            Put(keys.group_static(self.group, instance_id), encode_static(member))
            for instance_id, member in static.items()
            if self._static.get(instance_id) != member
        )
        await self._apply(writes)
        self._row, self._static = row, static

    async def commit(self, puts: Mapping[OffsetKey, GroupOffset], deletes: Collection[OffsetKey] = ()) -> None:
        """Write committed offsets, and remove others."""
        key_of = self._store.keys.group_offset
        writes: list[_Write] = [
            Put(key_of(self.group, *each), encode_offset(committed)) for each, committed in puts.items()
        ]
        writes += (Delete(key_of(self.group, *each)) for each in deletes if each not in puts)
        await self._apply(writes)
        self._replace(puts, deletes)

    async def delete(self) -> None:
        """Remove the group and all that it has committed."""
        keys = self._store.keys
        writes: list[_Write] = [Delete(self._key)]
        writes += (
            DeletePrefix(keys.group_static_prefix(self.group)),
            DeletePrefix(keys.group_offsets_prefix(self.group)),
        )
        await self._apply(writes)
        self._replace({}, tuple(self._offsets))

    async def claim_again(self) -> None:
        """Change the row, so that no write whose outcome is unknown can land later, then read what has landed.

        Raises:
            GroupClaimLostError: another coordinator has the group, or it was deleted.
            BackendUnavailableError: the store did not answer; call it again before the next write.
            OutcomeUnknownError: the same.
            MetadataDecodeError: a row that cannot be understood.
        """
        for _ in range(_ATTEMPTS):
            found = await self._store.row(self.group)
            if found is None or found.session_id != self._row.session_id:
                raise self._lost()
            self._row = found
            with contextlib.suppress(GroupClaimLostError):  # an earlier write of ours has landed in between
                await self._change()
                break
        else:
            raise BackendUnavailableError(f"group {self.group!r} changed {_ATTEMPTS} times while it was read again")
        self._static = await self._store.static_members(self.group)
        offsets = await self._store.offsets(self.group)
        self._replace(offsets, tuple(self._offsets))

    async def _change(self) -> None:
        row = replace(self._row, revision=self._row.revision + 1)
        await self._apply([Put(self._key, encode_group(row))])
        self._row = row

    def _replace(self, puts: Mapping[OffsetKey, GroupOffset], deletes: Collection[OffsetKey]) -> None:
        for each in (*deletes, *puts):
            gone = self._offsets.pop(each, None)
            self.size_bytes -= 0 if gone is None else gone.size_bytes
        self._offsets.update(puts)
        self.size_bytes += sum(each.size_bytes for each in puts.values())

    @property
    def _key(self) -> str:
        return self._store.keys.group(self.group)

    async def _apply(self, writes: Sequence[_Write]) -> None:
        try:
            await self._store.values.apply(Batch(writes, [Expect(self._key, encode_group(self._row))]))
        except PreconditionFailedError as error:
            raise self._lost() from error

    def _lost(self) -> GroupClaimLostError:
        return GroupClaimLostError(
            f"group {self.group!r} is coordinated elsewhere, or was deleted", remedy="clients find its coordinator anew"
        )
