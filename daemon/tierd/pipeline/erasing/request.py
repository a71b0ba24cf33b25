"""EraseRequest: which keys are to go from a partition, and what was done about it so far; values only.

::

    SEARCHING ──► LEAVING ──► VERSIONS ──► CACHES ──► DONE        every arrow but the last may lead back
        └────────────┴───────────┴───────────┴──────► CANCELLED

A request stands at the first thing that is not true yet: every readable segment was looked through; what held the keys
has left the bucket; the bucket keeps no older version of it; this host's caches keep nothing of it. The keys themselves
are forgotten with the last step.
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
        """Return True if nothing more happens."""
        return self in (ErasePhase.DONE, ErasePhase.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftSegment:
    """A segment that held a key, or may have held one, and is not read any more.

    Attributes:
        custom_metadata: what finds its objects.
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
        """Return the part of a segment's metadata that is kept."""
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
        searched: segments that were found free of the keys, or made so.
        rewritten: those of them that were written anew without.
        records_erased: of the request's own keys, and of unopened batches that it wanted to go; what two requests name
            counts in both.
        problems: of segments that could not be looked through; the first few.
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
    """That no older version of an object below the partition's prefix holds a key.

    Attributes:
        looked_at: versions that the store listed, current ones too.
        deleted: older versions and markers that were removed, over all tries.
        attested_by: who says so, where the store cannot tell; empty where it was asked.
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
    """That the caches on disk of one host hold nothing of the segments that left.

    Attributes:
        segments: how many were looked for.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    at_ms: int
    host: str
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRequest:
    """One request.

    Attributes:
        keys: every record with one of these goes; empty once the request has come to its end.
        key_digests: SHA-256 of each key, hexadecimal, ascending.
        tier_end_offset: where the tier ended when it was filed, exclusive; what follows lay in the broker's log alone.
        end_offset: where the log ended then, exclusive: what was written before is what the request is about.
        at_once: what is replaced leaves without the grace; what expired keeps it, for it may be wanted back.
        removes_unread: batches that unpack to more than tierd opens go whole, for the keys may be in them.
        searched: ids of segments without the keys: looked through, rewritten, or made of such.
        left: those that are not read any more and were not searched, whole or in part.
        versions: None until no older version is left.
        caches: None until the caches are clear.
        problem: why it does not get on, in words, and what to do; empty when nothing is in its way.
        history: when it came to each phase, in order.
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
        """Return True if anything is still to be done."""
        return not self.phase.is_end

    def concerns(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if a segment may hold one of the keys, as far as the request is about it."""
        return metadata.start_offset < self.end_offset and metadata.segment.id not in self.searched

    def after_search(
        self, note: SearchNote, *, searched: Iterable[UUID], replaced: Iterable[RemoteLogSegmentMetadata]
    ) -> Self:
        """With what a run did: segments without the keys, and those whose place others have taken."""
        if not self.is_open:
            return self
        known = self.inherited(searched, replaced)
        return replace(known, runs=(*self.runs, note)[-_RUNS_KEPT:])

    def inherited(self, searched: Iterable[UUID], replaced: Iterable[RemoteLogSegmentMetadata]) -> Self:
        """With what was made of segments without the keys by a run that looked for none, and what it replaced."""
        if not self.is_open:
            return self
        known = self._with_left({each.segment.id: LeftSegment.of(each) for each in replaced})
        return replace(known, searched=self.searched.union(searched))

    def seen(self, left: Iterable[LeftSegment]) -> Self:
        """With the segments that are not read any more, as they are found now."""
        return self._with_left({each.id: each for each in left}) if self.is_open else self

    def cleared(self, versions: VersionsNote | None = None, caches: CachesNote | None = None) -> Self:
        """With what was found about older versions, or about caches."""
        if not self.is_open:
            return self
        return replace(self, versions=versions or self.versions, caches=caches or self.caches)

    def blocked(self, problem: str) -> Self:
        """With the reason why it does not get on, or without one."""
        return replace(self, problem=problem) if self.is_open else self

    def moved(self, phase: ErasePhase, *, now_ms: int) -> Self:
        """In ``phase``; what was proven for later ones counts no more on the way back, and the end forgets the keys."""
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
    """A request as it is filed.

    Args:
        request_id: never used before.
        partition: of which incarnation of the topic.
        keys: at least one.
        now_ms: wall clock.
        requested_by: a person, for the report.
        reason: the same.
        tier_end_offset: exclusive.
        log_end_offset: of the broker's log, exclusive; None where what it has beyond the tier never comes there.
        at_once: without the grace.
        removes_unread: with batches that cannot be opened, all of their records.

    Raises:
        RefusedError: no key, or too many or too long ones for one request.
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
