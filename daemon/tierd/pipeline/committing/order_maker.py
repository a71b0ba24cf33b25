"""OrderMaker: makes the order of one run from candidates, with the evidence of their objects."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import MetadataDecodeError, TierError
from tierd.kernels import new_hash_secret
from tierd.metadata import KeyValueStore, MetadataKeyFactory, key_secret
from tierd.model import TopicIdPartition
from tierd.pipeline.committing.evidence_reader import EvidenceReader
from tierd.pipeline.planning import (
    Candidate,
    PartitionWork,
    Proposal,
    RunBudget,
    Skipped,
    TierEvidence,
    WorkOrder,
    audit_works,
    by_urgency,
    plan_partition,
)

log = structlog.get_logger()

_NO_ROOM = "this run rewrites enough: it is left to the next one"


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """Order, and the candidates that are not in it, each with the reason."""

    order: WorkOrder
    skipped: tuple[Skipped, ...]


async def one_off_secret() -> bytes:
    """Return a fresh secret: stored hashes of keys are not used, and those of the run are of no use to later runs."""
    return new_hash_secret()


async def stored_secret(rows: KeyValueStore, keys: MetadataKeyFactory) -> bytes:
    """Return the secret of the metadata store, made once; a one-off secret where the row cannot be understood.

    Raises:
        BackendUnavailableError: the store does not answer, or has no secret and cannot be written.
        OutcomeUnknownError: the secret may or may not have been written; ask again.
    """
    try:
        return await key_secret(rows, keys)
    except MetadataDecodeError as error:  # erasures and compactions go on, as if no hashes were stored
        log.warning("key_secret_unreadable", problem=str(error), remedy=f"delete the row {keys.key_secret_key}")
        return await one_off_secret()


class OrderMaker:
    """Maker of orders. It plans twice: all candidates from metadata, then the chosen ones with their objects."""

    def __init__(
        self,
        evidence: EvidenceReader,
        *,
        clock: Clock,
        run_secret: Callable[[], Awaitable[bytes]],
        random: Callable[[], float],
    ) -> None:
        self._evidence = evidence
        self._clock = clock
        self._run_secret = run_secret
        self._random = random
        self._failed: frozenset[TopicIdPartition] = frozenset()

    def note_failed(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Put failed partitions last in the next order, since their urgency stays and could fill every run."""
        self._failed = self._failed.union(partitions)

    async def prepare(
        self, candidates: Sequence[Candidate], *, run_id: UUID, max_bytes: int | None, audit_bytes: int = 0
    ) -> PreparedRun:
        """Choose the work of one run; a partition whose objects cannot be read is skipped, the others go on.

        Args:
            candidates: partitions that this broker leads, with views that are loaded.
            run_id: id of the run.
            max_bytes: bytes that the run may rewrite; None for no limit.
            audit_bytes: bytes of the segments that the run audits; 0 for none.

        Raises:
            BackendUnavailableError: as ``stored_secret``, if that is where the secret comes from.
        """
        now_ms = self._clock.now_ms()
        secret = await self._run_secret()
        planned = await asyncio.to_thread(_plan_all, candidates, now_ms)
        skipped = [plan for plan in planned if isinstance(plan, Skipped)]
        urgent = by_urgency((plan for plan in planned if isinstance(plan, Proposal)), behind=self._failed)
        chosen, left = _taken(urgent, max_bytes)
        skipped += left
        evidence = await self._gather_evidence(chosen)
        unreadable = (p.partition for p, found in zip(chosen, evidence, strict=True) if isinstance(found, Skipped))
        self._failed = frozenset(unreadable)
        works, too_late = await asyncio.to_thread(_works, chosen, evidence, max_bytes=max_bytes, now_ms=now_ms)
        skipped += too_late
        works += await asyncio.to_thread(self._audits, candidates, works, audit_bytes)
        order = WorkOrder(run_id=run_id, now_ms=now_ms, secret=secret, partitions=tuple(works))
        return PreparedRun(order, tuple(skipped))

    def _audits(
        self, candidates: Sequence[Candidate], works: Sequence[PartitionWork], audit_bytes: int
    ) -> list[PartitionWork]:
        rewritten = {row.segment.id for work in works for row in work.inputs}
        return audit_works(
            candidates, max_bytes=audit_bytes, but=rewritten, random=self._random, first_index=len(works)
        )

    async def _gather_evidence(self, proposals: Iterable[Proposal]) -> list[TierEvidence | Skipped]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._evidence_of(proposal.candidate), name=f"evidence of {proposal.partition}")
                for proposal in proposals
            ]
        return [task.result() for task in tasks]

    async def _evidence_of(self, candidate: Candidate) -> TierEvidence | Skipped:
        try:
            return await self._evidence.of_chain(await asyncio.to_thread(candidate.chain))
        except TierError as error:
            log.warning("compaction_candidate_unreadable", partition=str(candidate.partition), problem=str(error))
            return Skipped(candidate.partition, f"{candidate.partition} cannot be looked at: {error}")


def _plan_all(candidates: Iterable[Candidate], now_ms: int) -> list[Proposal | Skipped]:
    return [plan_partition(candidate, now_ms=now_ms) for candidate in candidates]


def _taken(proposals: Iterable[Proposal], max_bytes: int | None) -> tuple[list[Proposal], list[Skipped]]:
    """Return the proposals, whole, that may have room in a run, and the skipped ones.

    With the evidence of its objects a proposal only becomes smaller.
    """
    budget = RunBudget(max_bytes)
    taken: list[Proposal] = []
    left: list[Skipped] = []
    for proposal in proposals:
        if budget.take(proposal) is None:
            left.append(Skipped(proposal.partition, _NO_ROOM))
        else:
            taken.append(proposal)
    return taken, left


def _works(
    chosen: Iterable[Proposal], found: Iterable[TierEvidence | Skipped], *, max_bytes: int | None, now_ms: int
) -> tuple[list[PartitionWork], list[Skipped]]:
    """Return the work of the proposals with their evidence, and the proposals that are skipped after all."""
    works: list[PartitionWork] = []
    skipped: list[Skipped] = []
    budget = RunBudget(max_bytes)
    for proposal, evidence in zip(chosen, found, strict=True):
        work = _work(proposal, evidence, budget, index=len(works), now_ms=now_ms)
        if isinstance(work, Skipped):
            skipped.append(work)
        else:
            works.append(work)
    return works, skipped


def _work(
    proposal: Proposal, evidence: TierEvidence | Skipped, budget: RunBudget, *, index: int, now_ms: int
) -> PartitionWork | Skipped:
    if isinstance(evidence, Skipped):
        return evidence
    stable = evidence.last_stable_offset
    planned = plan_partition(proposal.candidate, now_ms=now_ms, last_stable_offset=stable)
    if isinstance(planned, Skipped):
        return planned
    taken = budget.take(planned)
    if taken is None:
        return Skipped(planned.partition, _NO_ROOM)
    return taken.with_evidence(index, evidence, now_ms=now_ms)
