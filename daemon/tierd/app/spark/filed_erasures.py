"""``tierd erase list`` and ``status``: the filed requests, from the metadata alone, and the reports of requests."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Final
from uuid import UUID

from tierd.app.engine.host_metadata import HostMetadata
from tierd.errors import TierError, TierErrorCode
from tierd.model import TopicPartition, uuid_from_text, uuid_to_text
from tierd.pipeline import EraseRequest, EraseRequests, LeftSegment
from tierd.serve import (
    ErasureCaches,
    ErasureLeftSegment,
    ErasureReport,
    ErasureSearch,
    ErasureStep,
    ErasureSummary,
    ErasureVersions,
)

_NEVER_COVERED: Final = (
    "the log of the broker and its replicas: it goes there by their own retention or compaction",
    "copies that others made: replicated buckets, backups, snapshots of disks, restored logs, state stores, consumers",
    "caches on disk of other hosts that read this tier",
    "values, headers and other keys that tell of the same person",
)


async def list_erasures(host: HostMetadata, name: TopicPartition | None) -> list[ErasureSummary]:
    """Return every request, of one partition or of all, in the order of filing. A daemon may run meanwhile.

    Raises:
        TierError: the metadata store cannot be read.
    """
    async with _requests(host) as requests:
        found = await requests.list()
    return [erasure_summary(each) for each in found if name is None or each.partition.topic_partition == name]


async def read_erasure(host: HostMetadata, request_id: str) -> ErasureReport:
    """Return the report of one request. A daemon may run meanwhile.

    Raises:
        TierError: there is no request of that id.
        TierError: the metadata store cannot be read.
    """
    async with _requests(host) as requests:
        return erasure_report(await requests.get(erasure_id(request_id)))


def erasure_id(text: str) -> UUID:
    """Return the id of a request that a person wrote.

    Raises:
        TierError: the text is none.
    """
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise TierError(
            f"{text!r} is no id of a request", remedy="see tierd erase list", code=TierErrorCode.UNKNOWN_ERASURE
        ) from error


@contextlib.asynccontextmanager
async def _requests(host: HostMetadata) -> AsyncIterator[EraseRequests]:
    keys = host.metadata_keys(await host.identity())
    async with host.metadata_store(read_only=True) as rows:
        yield EraseRequests(rows, keys)


def erasure_summary(request: EraseRequest) -> ErasureSummary:
    """Return the line of ``request`` in ``tierd erase list``."""
    return ErasureSummary(
        request_id=uuid_to_text(request.id),
        partition=str(request.partition.topic_partition),
        topic_id=uuid_to_text(request.partition.topic_id),
        phase=request.phase.value,
        problem=request.problem,
        requested_at_ms=request.requested_at_ms,
        requested_by=request.requested_by,
        reason=request.reason,
        keys=len(request.key_digests),
        records_erased=sum(run.records_erased for run in request.runs),
    )


def erasure_report(request: EraseRequest) -> ErasureReport:
    """Return everything that was done for ``request``, with counts and times, as a proof."""
    return ErasureReport(
        **erasure_summary(request).model_dump(),
        key_sha256=request.key_digests,
        tier_end_offset=request.tier_end_offset,
        end_offset=request.end_offset,
        at_once=request.at_once,
        removes_unread=request.removes_unread,
        history=tuple(ErasureStep(at_ms=at_ms, phase=phase.value) for at_ms, phase in request.history),
        runs=tuple(ErasureSearch(**asdict(run)) for run in request.runs),
        segments_left=tuple(map(_left, request.left)),
        versions=None if request.versions is None else ErasureVersions(**asdict(request.versions)),
        caches=None if request.caches is None else ErasureCaches(**asdict(request.caches)),
        not_covered=_not_covered(request),
    )


def _left(segment: LeftSegment) -> ErasureLeftSegment:
    return ErasureLeftSegment(
        segment_id=uuid_to_text(segment.id),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        gone_at_ms=segment.gone_at_ms,
    )


def _not_covered(request: EraseRequest) -> tuple[str, ...]:
    since = f"records that were written at offset {request.end_offset} or later, which is after the request"
    if request.tier_end_offset == request.end_offset:
        return (since, *_NEVER_COVERED)
    span = f"{request.tier_end_offset} to {request.end_offset - 1}"
    local = f"offsets {span} in the broker's log, where they lay when it was filed: they are covered in the tier alone"
    return (since, local, *_NEVER_COVERED)
