"""EraseRequest: the keys that are erased from a partition, and the progress of the erasure; values only.

::

    SEARCHING ──► LEAVING ──► VERSIONS ──► CACHES ──► DONE        every arrow but the last may lead back
        └────────────┴───────────┴───────────┴──────► CANCELLED

A request waits in the first phase whose condition is not met yet. SEARCHING: every finished segment was searched, and
the tier has every offset of the request. LEAVING: the segments that held the keys have left the bucket. VERSIONS: the
bucket keeps no older version of these segments. CACHES: this host's caches keep nothing of these segments. At its end a
request forgets its keys.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Final, Self
from uuid import UUID

from pydantic import ConfigDict

from tierd.errors import RefusedError
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition

MAX_KEYS: Final = 1000
MAX_KEY_BYTES: Final = 256 << 10
_RUNS_KEPT: Final = 50
_STRICT: Final = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class ErasePhase(StrEnum):
    """Condition that a request waits for, or its end."""

    SEARCHING = "searching"
    LEAVING = "leaving"
    VERSIONS = "versions"
    CACHES = "caches"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Return True if a request of this phase is done or cancelled."""
        return self in (ErasePhase.DONE, ErasePhase.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftSegment:
    """Segment that held a key, or may have held one, and is not read any more.

    Attributes:
        custom_metadata: custom metadata of the segment, by which the storage finds its objects.
        gone_at_ms: when its objects were first known to be gone; None while they are there.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: UUID
    start_offset: int
    end_offset: int
    size_bytes: int
    custom_metadata: bytes | None
    gone_at_ms: int | None = None

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata, *, gone_at_ms: int | None = None) -> Self:
        """Return the part of a segment's metadata that a request keeps."""
        return cls(
            id=metadata.segment.id,
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            size_bytes=metadata.size_bytes,
            custom_metadata=metadata.custom_metadata,
            gone_at_ms=gone_at_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchNote:
    """Result of one run for a request.

    Attributes:
        searched: number of segments that are newly known to be without the keys.
        rewritten: number of those segments that are outputs of the run.
        records_erased: records removed for the request's own keys, and with unopened batches if the request removes
            these; records that two requests name count in both.
        problems: problems of segments that could not be searched; the first few.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    run_id: str
    ended_at_ms: int
    searched: int
    rewritten: int
    records_erased: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsNote:
    """Note that no older version of an object below the partition's prefixes holds a key.

    Attributes:
        looked_at: versions that the store listed, current ones too.
        deleted: older versions and markers that were removed.
        attested_by: the person who states it, for a store that cannot list versions; empty where the store was asked.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    at_ms: int
    looked_at: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    attested_by: str = ""
    statement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachesNote:
    """Note that the caches on disk of one host hold nothing of the segments that left.

    Attributes:
        segments: number of segments that were searched for.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    at_ms: int
    host: str
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRequest:
    """Request to erase keys from a partition.

    Attributes:
        keys: every record with one of these keys is erased; empty once the request has come to its end.
        key_digests: SHA-256 of each key, hexadecimal, ascending.
        tier_end_offset: end of the tier when the request was filed, exclusive; later offsets were in the broker's log
            alone.
        end_offset: end of the log when the request was filed, exclusive: the request is about earlier records.
        at_once: replaced segments leave without the grace; expired ones keep it, for they may be undeleted.
        removes_unread: batches that unpack to more than tierd opens are removed whole, for the keys may be in them.
        searched: ids of segments without the keys: searched, rewritten, or made of such segments.
        left: segments that may have held a key and are not read any more.
        versions: None until no older version is left.
        caches: None until the caches are clear.
        problem: why the request does not get on, in words, and what to do; empty when nothing blocks it.
        history: time and phase of each change of phase, in order.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: UUID
    partition: TopicIdPartition
    keys: frozenset[bytes]
    key_digests: tuple[str, ...]
    requested_at_ms: int
    requested_by: str
    reason: str
    tier_end_offset: int
    end_offset: int
    at_once: bool
    removes_unread: bool = False
    phase: ErasePhase = ErasePhase.SEARCHING
    searched: frozenset[UUID] = frozenset()
    left: tuple[LeftSegment, ...] = ()
    runs: tuple[SearchNote, ...] = ()
    versions: VersionsNote | None = None
    caches: CachesNote | None = None
    problem: str = ""
    history: tuple[tuple[int, ErasePhase], ...] = field(default=())

    def __repr__(self) -> str:
        return f"EraseRequest({self.id}, {self.partition}, {len(self.key_digests)} keys, {self.phase})"

    @property
    def is_open(self) -> bool:
        """Return True if the request is neither done nor cancelled."""
        return not self.phase.is_end

    def concerns(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if a segment may hold one of the keys below the end offset of the request."""
        return metadata.start_offset < self.end_offset and metadata.segment.id not in self.searched

    def after_search(
        self, note: SearchNote, *, searched: Iterable[UUID], replaced: Iterable[RemoteLogSegmentMetadata]
    ) -> Self:
        """Return the request with what a run did: segments without the keys, and replaced segments."""
        if not self.is_open:
            return self
        known = self.inherited(searched, replaced)
        return replace(known, runs=(*self.runs, note)[-_RUNS_KEPT:])

    def inherited(self, searched: Iterable[UUID], replaced: Iterable[RemoteLogSegmentMetadata]) -> Self:
        """Return the request with the searched and replaced segments of a run, but without a note of the run."""
        if not self.is_open:
            return self
        known = self._with_left({each.segment.id: LeftSegment.of(each) for each in replaced})
        return replace(known, searched=self.searched.union(searched))

    def seen(self, left: Iterable[LeftSegment]) -> Self:
        """Return the request with the segments that are not read any more, as they are found now."""
        return self._with_left({each.id: each for each in left}) if self.is_open else self

    def cleared(self, versions: VersionsNote | None = None, caches: CachesNote | None = None) -> Self:
        """Return the request with what was found about older versions, or about caches."""
        if not self.is_open:
            return self
        return replace(self, versions=versions or self.versions, caches=caches or self.caches)

    def blocked(self, problem: str) -> Self:
        """Return the request with the reason why it does not get on; empty for none."""
        return replace(self, problem=problem) if self.is_open else self

    def moved(self, phase: ErasePhase, *, now_ms: int) -> Self:
        """Return the request in ``phase``; SEARCHING and LEAVING drop later proofs, an end drops the keys."""
        if not self.is_open or phase is self.phase:
            return self
        moved = replace(self, phase=phase, history=(*self.history, (now_ms, phase)))
        if phase in (ErasePhase.SEARCHING, ErasePhase.LEAVING):
            return replace(moved, versions=None, caches=None)
        if phase.is_end:
            return replace(moved, keys=frozenset(), searched=frozenset(), problem="")
        return moved

    def _with_left(self, found: Mapping[UUID, LeftSegment]) -> Self:
        known = {each.id: each for each in self.left}
        for segment_id, each in found.items():
            former = known.get(segment_id)
            gone_at_ms = former.gone_at_ms if former is not None and former.gone_at_ms is not None else each.gone_at_ms
            known[segment_id] = replace(each, gone_at_ms=gone_at_ms)
        ordered = sorted(known.values(), key=lambda each: (each.start_offset, each.end_offset, each.id))
        return replace(self, left=tuple(ordered))


def new_request(
    request_id: UUID,
    partition: TopicIdPartition,
    keys: Iterable[bytes],
    *,
    now_ms: int,
    requested_by: str,
    reason: str,
    tier_end_offset: int,
    log_end_offset: int | None,
    at_once: bool,
    removes_unread: bool = False,
) -> EraseRequest:
    """Return a request as it is filed.

    Args:
        request_id: an id that was never used before.
        partition: partition, of one incarnation of the topic.
        keys: at least one.
        now_ms: wall clock.
        requested_by: a person, for the report.
        reason: the person's reason, for the report.
        tier_end_offset: end of the tier, exclusive.
        log_end_offset: end of the broker's log, exclusive; None where later offsets of the log never come to the tier.
        at_once: replaced segments leave without the grace.
        removes_unread: batches that cannot be opened are removed whole.

    Raises:
        RefusedError: no key was named, or the keys are too many or too long for one request.
    """
    wanted = frozenset(keys)
    if not wanted:
        raise RefusedError("no key was named", remedy="name one with --key, --key-base64 or --keys-file")
    size_bytes = sum(map(len, wanted))
    if len(wanted) > MAX_KEYS or size_bytes > MAX_KEY_BYTES:
        raise RefusedError(
            f"{len(wanted)} keys of {size_bytes} bytes are too many for one request",
            remedy=f"file several, each of at most {MAX_KEYS} keys and {MAX_KEY_BYTES} bytes",
        )
    return EraseRequest(
        id=request_id,
        partition=partition,
        keys=wanted,
        key_digests=tuple(sorted(hashlib.sha256(key).hexdigest() for key in wanted)),
        requested_at_ms=now_ms,
        requested_by=requested_by,
        reason=reason,
        tier_end_offset=tier_end_offset,
        end_offset=max(tier_end_offset, log_end_offset or 0),
        at_once=at_once,
        removes_unread=removes_unread,
        history=((now_ms, ErasePhase.SEARCHING),),
    )
