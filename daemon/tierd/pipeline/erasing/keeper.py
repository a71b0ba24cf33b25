"""ErasureKeeper: takes every open request as far as it may go now, step by step; each step may be interrupted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import ObjectVersionsUnknownError, RefusedError, TierError
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, uuid_to_text
from tierd.pipeline.committing import PartitionRound, RunStatistics
from tierd.pipeline.erasing.erase_request import CachesNote, ErasePhase, EraseRequest, LeftSegment, VersionsNote
from tierd.pipeline.erasing.erase_requests import EraseRequests
from tierd.pipeline.erasing.erasure_evidence import with_evidence
from tierd.pipeline.erasing.outlook import Outlook, gone_before, gone_now, next_phase, obstacle_of, outlook_of
from tierd.pipeline.erasing.reports import ErasureReports
from tierd.pipeline.erasing.versions import OldVersions
from tierd.pipeline.planning import Candidate

log = structlog.get_logger()

STEP_S: Final = 30.0
_STEP_TIMEOUT_S: Final = 600.0


class DiskCaches(Protocol):
    """Caches on disk of this host."""

    @property
    def host(self) -> str:
        """Return the name of the host, for people."""

    async def evict(self, partition: TopicIdPartition, segments: Sequence[LeftSegment]) -> int:
        """Drop everything of these segments; return the number of segments of which a part in use is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperParts:
    """Collaborators of the steps.

    Attributes:
        requests: the rows of the requests.
        find: returns the partition as a run would take it, loaded; None where this broker does not lead it.
        remove: removes a replaced segment without its grace; False while a task works on it.
        versions: remover of old object versions.
        caches: caches on disk of this host.
        reports: reports of requests, in the bucket.
        clock: wall clock of notes, and of steps.
    """

    requests: EraseRequests
    find: Callable[[TopicIdPartition], Awaitable[Candidate | None]]
    remove: Callable[[RemoteLogSegmentMetadata], Awaitable[bool]]
    versions: OldVersions
    caches: DiskCaches
    reports: ErasureReports
    clock: Clock


class ErasureKeeper:
    """Task that moves open requests on. It owns no request: each is a row that every step reads anew."""

    def __init__(self, parts: KeeperParts) -> None:
        self._parts = parts
        self._requests = parts.requests
        self._clock = parts.clock

    async def run(self) -> None:
        """Step through the open requests every ``STEP_S``, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_STEP_TIMEOUT_S):
                    await self.step_all()
            except TimeoutError:
                log.warning("erasures_too_slow", timeout_s=_STEP_TIMEOUT_S, remedy="the next step goes on")
            except TierError as error:
                log.warning("erasures_not_looked_at", problem=str(error), remedy=error.remedy)
            await self._clock.sleep(STEP_S)

    async def step_all(self, partition: TopicIdPartition | None = None) -> list[EraseRequest]:
        """Take a step of each open request, of one partition or of all, then publish; return the requests after it.

        A request whose partition another broker leads is returned unchanged.

        Raises:
            TierError: the metadata store does not answer, or has a request that cannot be understood.
        """
        stepped = []
        for request in await self._requests.list(partition, only_open=True):
            try:
                stepped.append(await self.step(request.id))
            except TierError as error:
                log.warning("erasure_step_failed", request=uuid_to_text(request.id), problem=str(error))
                problem = error.explained
                stepped.append(await self._requests.update(request.id, lambda r: r.blocked(problem)))  # noqa: B023
        await self.publish()
        return stepped

    async def publish(self) -> None:
        """Make the reports in the bucket equal to the rows. A report that cannot be stored is logged and tried again.

        Raises:
            BackendUnavailableError: the metadata store does not answer.
        """
        await self._parts.reports.publish_all()

    async def step(self, request_id: UUID) -> EraseRequest:
        """Take a request as far as it may go now.

        Raises:
            TierError: there is no request of that id.
            TierError: a store did not answer; what was done until then stays done.
        """
        request = await self._requests.get(request_id)
        candidate = await self._parts.find(request.partition) if request.is_open else None
        if candidate is None:
            return request
        request = await self._noted(request, candidate)
        outlook = await asyncio.to_thread(outlook_of, request, candidate)  # the outlook reads every row
        request = await self._moved(request, outlook)
        if request.at_once and await self._remove(outlook.replaced):
            request = await self._reassess(request)
        if request.phase is ErasePhase.VERSIONS:
            request = await self._clear_versions(request)
        if request.phase is ErasePhase.CACHES:
            request = await self._clear_caches(request)
        return request

    async def after_run(self, run_id: str, rounds: Sequence[PartitionRound], statistics: RunStatistics) -> None:
        """Note the proofs of a run. The next run searches again for keys whose note is lost here.

        Raises:
            TierError: the metadata store does not answer.
        """
        if not rounds:
            return
        by_partition = {round_.work.partition: round_ for round_ in rounds}
        for request in await self._requests.list(only_open=True):
            round_ = by_partition.get(request.partition)
            if round_ is None:
                continue
            problems = [each.problem for each in statistics.problems if each.partition == request.partition]
            now_ms = self._clock.now_ms()
            await self._requests.update(
                request.id,
                lambda r: with_evidence(r, round_, run_id=run_id, now_ms=now_ms, problems=problems),  # noqa: B023
            )

    async def cancel(self, request_id: UUID) -> EraseRequest:
        """Cancel a request; erased records stay erased.

        Raises:
            TierError: there is no request of that id.
            RefusedError: the request is done.
        """
        now_ms = self._clock.now_ms()
        cancelled = await self._requests.update(request_id, lambda r: r.moved(ErasePhase.CANCELLED, now_ms=now_ms))
        if cancelled.phase is not ErasePhase.CANCELLED:
            raise RefusedError(f"request {uuid_to_text(request_id)} is done", remedy="nothing to do")
        return cancelled

    async def attest(self, request_id: UUID, *, by: str, statement: str) -> EraseRequest:
        """Accept a person's statement that no older versions are left, for a store that cannot list them; take a step.

        Raises:
            TierError: there is no request of that id.
            RefusedError: the request is not in the phase VERSIONS.
        """
        note = VersionsNote(at_ms=self._clock.now_ms(), attested_by=by, statement=statement)
        request = await self._requests.update(
            request_id, lambda r: r.cleared(versions=note) if r.phase is ErasePhase.VERSIONS else r
        )
        if request.versions != note:
            raise RefusedError(
                f"request {uuid_to_text(request_id)} is at {request.phase.value}, not at versions",
                remedy="attest once the request waits for that; tierd erase status shows its phase",
            )
        return await self.step(request_id)

    async def _noted(self, request: EraseRequest, candidate: Candidate) -> EraseRequest:
        now_ms = self._clock.now_ms()
        return await self._requests.update(request.id, lambda r: gone_now(r, candidate.view, now_ms=now_ms))

    async def _remove(self, leaving: Iterable[RemoteLogSegmentMetadata]) -> bool:
        """Remove replaced segments without waiting for their grace; return True if one was removed."""
        is_any_gone = False
        for metadata in leaving:
            is_any_gone = await self._parts.remove(metadata) or is_any_gone
        return is_any_gone

    async def _moved(self, request: EraseRequest, outlook: Outlook) -> EraseRequest:
        """Move a request to the phase that follows from ``outlook``, with the reason why it waits there."""
        now_ms = self._clock.now_ms()

        def move(present: EraseRequest) -> EraseRequest:
            if present.searched != request.searched or present.left != request.left:
                return present  # a run has ended meanwhile: the next step looks again
            phase = next_phase(
                present.phase,
                is_searched=outlook.is_searched,
                has_left=outlook.has_left,
                versions_clear=present.versions is not None,
                caches_clear=present.caches is not None,
            )
            moved = present.moved(phase, now_ms=now_ms)
            if moved.phase in (ErasePhase.SEARCHING, ErasePhase.LEAVING):
                return moved.blocked(obstacle_of(moved, outlook, now_ms=now_ms))
            return moved if moved.phase is present.phase else moved.blocked("")

        return self._report_phase(request, await self._requests.update(request.id, move))

    async def _clear_versions(self, request: EraseRequest) -> EraseRequest:
        candidate = await self._parts.find(request.partition)
        if candidate is None:
            return request
        try:
            outcome = await self._parts.versions.clear(request, candidate.view, now_ms=self._clock.now_ms())
        except ObjectVersionsUnknownError as error:
            problem = f"older versions cannot be verified: {error}; {error.remedy}"
            return await self._requests.update(request.id, lambda r: r.blocked(problem))
        note = outcome.note
        if note is None:
            return await self._requests.update(request.id, lambda r: r.blocked(outcome.problem))
        return await self._proven(request, versions=note)

    async def _clear_caches(self, request: EraseRequest) -> EraseRequest:
        candidate = await self._parts.find(request.partition)
        if candidate is None:
            return request
        caches, gone = self._parts.caches, (*request.left, *gone_before(request, candidate.view))
        in_use = await caches.evict(request.partition, gone)
        if in_use:
            problem = f"of {in_use} segments that left something is in a cache of {caches.host}: it is being used"
            return await self._requests.update(request.id, lambda r: r.blocked(problem))
        note = CachesNote(at_ms=self._clock.now_ms(), host=caches.host, segments=len(gone))
        return await self._proven(request, caches=note)

    async def _proven(
        self, request: EraseRequest, *, versions: VersionsNote | None = None, caches: CachesNote | None = None
    ) -> EraseRequest:
        """Note what was proven, if the row still has the segments of ``request``; then move it by a new outlook."""
        await self._requests.update(
            request.id,
            lambda r: r.cleared(versions=versions, caches=caches) if r.left == request.left else r,
        )
        return await self._reassess(request)

    async def _reassess(self, request: EraseRequest) -> EraseRequest:
        candidate = await self._parts.find(request.partition)
        if candidate is None:
            return await self._requests.get(request.id)
        present = await self._noted(request, candidate)
        return await self._moved(present, await asyncio.to_thread(outlook_of, present, candidate))

    def _report_phase(self, before: EraseRequest, after: EraseRequest) -> EraseRequest:
        if after.phase is not before.phase:
            log.info(
                "erasure_moved",
                request=uuid_to_text(after.id),
                partition=str(after.partition),
                phase=after.phase.value,
                before=before.phase.value,
            )
        return after
