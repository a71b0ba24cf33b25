"""ErasureReports: keeps a report of each request as an object of the bucket, where the proof outlives the metadata.

::

    <prefix>/<cluster id>/erasures/<request id>.json    the row of the request, without its keys; format_version 1

Where a key ring is configured, the object has a tag; an object without a tag proves nothing then (decision 31).

A row is durable before its object is written, and an object is not replaced by an earlier state of its row.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Final
from uuid import UUID

import structlog
from pydantic import TypeAdapter, ValidationError

from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.json_parsing import parse_json
from tierd.model import uuid_to_text
from tierd.pipeline.erasing.erase_request import ErasePhase, EraseRequest
from tierd.pipeline.erasing.erase_requests import EraseRequests
from tierd.pipeline.pipeline_errors import first_fault
from tierd.remote import (
    EMPTY_RING,
    ERASURE_REPORT,
    MAX_REPORT_VALUES,
    KeyRing,
    ObjectInfo,
    ObjectKeyFactory,
    ObjectStore,
    erasure_report_binding,
    read_whole,
    require_tag,
    with_tag,
)

log = structlog.get_logger()

FORMAT_VERSION: Final = 1
KEYS_LOST: Final = (
    "the metadata with its keys was lost before it was done; file the request again with tierd erase request TP --key …"
)
_ROW: Final = TypeAdapter(EraseRequest)
_FIELDS: Final = frozenset(each.name for each in fields_of(EraseRequest))
_SECRET: Final = ("keys", "searched")  # the keys themselves never go to the bucket, which may keep every version
_ATTEMPTS: Final = 8


def encode_report(request: EraseRequest) -> bytes:
    """Return the object of a request: all fields of its row but the keys and the searched ids."""
    fields = _ROW.dump_python(request, mode="json", exclude=set(_SECRET))
    return (json.dumps({"format_version": FORMAT_VERSION} | fields) + "\n").encode()


def decode_report(key: str, content: bytes) -> EraseRequest:
    """Parse ``encode_report``; the request has no keys and no searched ids. Unknown fields are ignored.

    Raises:
        RemoteIntegrityError: the object is no report, or of another format version; names the key and the field.
    """
    remedy = "use the tierd version that wrote it, or restore the object from a version of it"
    try:
        fields = parse_json(content, max_values=MAX_REPORT_VALUES)
        if not isinstance(fields, dict) or fields.pop("format_version", None) != FORMAT_VERSION:
            raise RemoteIntegrityError(f"{key} is no report of format_version {FORMAT_VERSION}", remedy=remedy)
        known = {name: value for name, value in fields.items() if name in _FIELDS}
        return _ROW.validate_python(known | {name: [] for name in _SECRET})
    except ValidationError as error:
        raise RemoteIntegrityError(f"{key}: {first_fault(error)}", remedy=remedy) from error
    except ValueError as error:
        raise RemoteIntegrityError(f"{key} is not JSON: {error}", remedy=remedy) from error


def recovered(request: EraseRequest, *, now_ms: int) -> EraseRequest:
    """Return the request as it is restored after its row was lost: an open request is cancelled, and says why."""
    if not request.is_open:
        return request
    cancelled = request.moved(ErasePhase.CANCELLED, now_ms=now_ms)
    return replace(cancelled, problem=KEYS_LOST)


class ErasureReports:
    """Publisher of the rows as objects. Every call may be repeated, and many processes may publish at once."""

    def __init__(
        self, store: ObjectStore, keys: ObjectKeyFactory, requests: EraseRequests, ring: KeyRing = EMPTY_RING
    ) -> None:
        self._store = store
        self._keys = keys
        self._ring = ring
        self._requests = requests
        self._published: dict[UUID, EraseRequest] = {}

    async def publish_all(self) -> None:
        """Store the report of every request that has changed since this process last stored it, ended ones too.

        A report that cannot be stored is logged, and does not keep the others back; the next call tries it again.

        Raises:
            BackendUnavailableError: the metadata store does not answer.
        """
        for request in await self._requests.list():
            if self._published.get(request.id) == request:
                continue
            try:
                await self._publish(request)
            except TierError as error:
                log.warning(
                    "erasure_report_not_stored",
                    request=uuid_to_text(request.id),
                    problem=str(error),
                    remedy=error.remedy,
                )

    async def _publish(self, request: EraseRequest) -> None:
        key = self._keys.erasure_report(request.id)
        try:
            await self._store.put(key, await self._content(request))
        except RemoteConflictError:
            request = await self._replace(key, request.id)
        self._published[request.id] = request

    async def _replace(self, key: str, request_id: UUID) -> EraseRequest:
        for _ in range(_ATTEMPTS):
            previous = await read_whole(self._store, key, ERASURE_REPORT)
            request = await self._requests.get(request_id)  # read after the object, so that the row is not older
            content = await self._content(request)
            if content == previous:
                return request
            try:
                await self._store.replace(key, content, previous=previous)
            except RemoteConflictError:
                continue
            return request
        raise RetriableRemoteStorageError(f"{key} changed {_ATTEMPTS} times meanwhile", remedy="it is tried again")

    async def _content(self, request: EraseRequest) -> bytes:
        return await asyncio.to_thread(self._encoded, request)  # a request may list many segments

    def _encoded(self, request: EraseRequest) -> bytes:
        return with_tag(encode_report(request), self._ring, erasure_report_binding(self._keys.cluster_id, request.id))


async def restore_requests(
    store: ObjectStore,
    keys: ObjectKeyFactory,
    requests: EraseRequests,
    *,
    now_ms: int,
    dry_run: bool,
    report_damage: Callable[[str, RemoteStorageError], None],
    ring: KeyRing = EMPTY_RING,
    accepts_unauthenticated: bool = False,
) -> tuple[EraseRequest, ...]:
    """File again the requests that have a report in the bucket and no row; return them in the order of their objects.

    Args:
        store: the object store.
        keys: object keys of the tier.
        requests: requests of the metadata that was rebuilt.
        now_ms: time at which open requests are cancelled, for their keys are lost.
        dry_run: only return the requests.
        report_damage: called with key and problem of each object that is no report, whose tag does not prove it, or
            that the store does not return; the others are restored.
        ring: key ring that proves the reports; with an empty ring no proof is needed.
        accepts_unauthenticated: restore also reports without a valid tag.

    Raises:
        RemoteStorageError: retriable; the store failed.
        BackendUnavailableError: the metadata store does not answer.
    """
    known = {request.id for request in await requests.list()}
    restored = []
    for info in await store.list_objects(keys.erasure_reports):
        try:
            request = await _read_report(store, keys, info, EMPTY_RING if accepts_unauthenticated else ring)
        except RemoteResourceNotFoundError:
            continue  # the object was removed after it was listed
        except RemoteStorageError as error:
            if error.retriable:
                raise
            report_damage(info.key, error)
            continue
        if request.id not in known:
            restored.append(recovered(request, now_ms=now_ms))
    if not dry_run:
        for request in restored:
            await requests.restore(request)
    return tuple(restored)


async def _read_report(store: ObjectStore, keys: ObjectKeyFactory, info: ObjectInfo, ring: KeyRing) -> EraseRequest:
    content = await read_whole(store, info.key, ERASURE_REPORT)
    return await asyncio.to_thread(_proven_report, content, keys, info, ring)  # a report may list many segments


def _proven_report(content: bytes, keys: ObjectKeyFactory, info: ObjectInfo, ring: KeyRing) -> EraseRequest:
    request = decode_report(info.key, content)
    if keys.erasure_report(request.id) != info.key:
        raise RemoteIntegrityError(f"{info.key} tells of request {uuid_to_text(request.id)}")
    require_tag(content, ring, erasure_report_binding(keys.cluster_id, request.id), key=info.key)
    return request
