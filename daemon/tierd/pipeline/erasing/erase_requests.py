"""EraseRequests: keeps the requests of a cluster as durable rows of the metadata store, changed one by one.

::

    v1/<cluster>/erasure/<request id>    a format byte, then JSON; with the keys until the request has come to its end
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import structlog
from pydantic import TypeAdapter, ValidationError

from tierd.errors import BackendUnavailableError, MetadataDecodeError, PreconditionFailedError, TierError, TierErrorCode
from tierd.metadata import Batch, Expect, KeyValueStore, MetadataKeyFactory, Put
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.pipeline.erasing.erase_request import EraseRequest
from tierd.pipeline.pipeline_errors import first_fault

log = structlog.get_logger()

_FORMAT: Final = b"\x01"
_ATTEMPTS: Final = 8
_ROW: Final = TypeAdapter(EraseRequest)

Change = Callable[[EraseRequest], EraseRequest]


class EraseRequests:
    """Store of requests. Every call may raise ``BackendUnavailableError`` and ``OutcomeUnknownError``.

    A change that was cancelled, or is of unknown outcome, has happened or not; every change may be repeated.
    """

    def __init__(self, store: KeyValueStore, keys: MetadataKeyFactory) -> None:
        self._store = store
        self._keys = keys

    async def file(self, request: EraseRequest) -> None:
        """Store a new request; durable when this returns."""
        await self._store.apply(Batch([Put(self._keys.erasure(request.id), encode_request(request))]))

    async def restore(self, request: EraseRequest) -> None:
        """Store a request that an earlier metadata store had, unless this one has a request of its id."""
        key = self._keys.erasure(request.id)
        with contextlib.suppress(PreconditionFailedError):
            await self._store.apply(Batch([Put(key, encode_request(request))], [Expect(key, None)]))

    async def get(self, request_id: UUID) -> EraseRequest:
        """Return a request.

        Raises:
            TierError: there is no request of that id.
            MetadataDecodeError: its row cannot be understood.
        """
        return (await self._read(request_id))[0]

    async def list(self, partition: TopicIdPartition | None = None, *, only_open: bool = False) -> list[EraseRequest]:
        """Return the requests, of one partition or of all, in the order in which they were filed.

        A request that cannot be understood is logged and left out: it must not stop the others, nor compaction.
        """
        rows = await self._store.scan(self._keys.erasure_prefix)
        found = await asyncio.to_thread(_understood, rows)  # a request knows by id each segment that it searched
        chosen = [
            request
            for request in found
            if (partition is None or request.partition == partition) and (request.is_open or not only_open)
        ]
        return sorted(chosen, key=lambda request: (request.requested_at_ms, request.id))

    async def update(self, request_id: UUID, change: Change) -> EraseRequest:
        """Apply ``change`` to the request as it is now, and return the result; an equal request is not written.

        Raises:
            TierError: there is no request of that id.
            BackendUnavailableError: the store does not answer, or the row changed at every attempt.
            MetadataDecodeError: its row cannot be understood.
        """
        for _ in range(_ATTEMPTS):
            present, value = await self._read(request_id)
            changed = change(present)
            if changed == present:
                return present
            key = self._keys.erasure(request_id)
            try:
                await self._store.apply(Batch([Put(key, encode_request(changed))], [Expect(key, value)]))
            except PreconditionFailedError:
                continue
            return changed
        raise BackendUnavailableError(f"request {uuid_to_text(request_id)} changed {_ATTEMPTS} times meanwhile")

    async def _read(self, request_id: UUID) -> tuple[EraseRequest, bytes]:
        key = self._keys.erasure(request_id)
        value = await self._store.get(key)
        if value is None:
            raise TierError(
                f"there is no request {uuid_to_text(request_id)}",
                remedy="tierd erase list shows all requests",
                code=TierErrorCode.UNKNOWN_ERASURE,
            )
        return decode_request(key, value), value


def _understood(rows: Iterable[tuple[str, bytes]]) -> list[EraseRequest]:
    found = []
    for key, value in rows:
        try:
            found.append(decode_request(key, value))
        except MetadataDecodeError as error:
            log.error("erasure_not_understood", problem=str(error), remedy=error.remedy)  # noqa: TRY400 - no bug
    return found


def encode_request(request: EraseRequest) -> bytes:
    """Encode a request as the value of its row."""
    return _FORMAT + _ROW.dump_json(request)


def decode_request(key: str, value: bytes) -> EraseRequest:
    """Parse ``encode_request``.

    Raises:
        MetadataDecodeError: the value is no request; names the key and the field.
    """
    try:
        if value[:1] != _FORMAT:
            raise MetadataDecodeError(f"{key}: not of format 1", remedy="upgrade tierd if a later one wrote it")
        return _ROW.validate_json(value[1:])
    except ValidationError as error:
        raise MetadataDecodeError(
            f"{key}: {first_fault(error)}", remedy="upgrade tierd if a later one wrote it, or restore a backup"
        ) from error
