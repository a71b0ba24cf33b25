"""DrilledPartition: what a drill found out about one partition, as the history has it; and the proofs in a history."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text


class DrillOutcome(StrEnum):
    """Outcome of the drill of one partition."""

    PROVEN = "proven"
    EMPTY = "empty"  # the tier has no records of the partition, so that nothing is to be proven
    FAILED = "failed"  # a restore would fail, or would give other records than the tier has
    SKIPPED = "skipped"  # it was not tried: too many bytes for the limits, or no room

    @property
    def is_proof(self) -> bool:
        """Return True if everything that the tier had of the partition is known to come back."""
        return self in (DrillOutcome.PROVEN, DrillOutcome.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrilledPartition:
    """Result of the drill of one partition.

    Attributes:
        run_id: the same for all partitions of a run.
        trigger: ``schedule`` or ``command``.
        partition: name as Kafka has it.
        topic_id: in Kafka's 22-character form.
        began_ms: wall clock before the plan was made; a proof is about everything that the tier had at that moment.
        end_offset: exclusive end of the restored batches.
        through_ms: largest timestamp of the restored segments; None without records.
        size_bytes: of the restored log files.
        rebuilt_indexes: segments whose indexes in the tier are damaged or missing; the restore has built them anew.
        checks: what was done: ``restored``, ``loaded``, ``compared`` and ``command``.
        samples: batches that were compared with the tier.
        is_from_bucket: the metadata was read from the bucket, not from the metadata store.
        problem: why it is no proof; empty for a proof.
        remedy: what to do about the problem.
        output: end of the output of ``drill.command`` where it failed.
    """

    run_id: str
    trigger: str
    partition: str
    topic_id: str
    began_ms: int
    ended_ms: int
    outcome: DrillOutcome
    log_start_offset: int = 0
    end_offset: int = 0
    through_ms: int | None = None
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    rebuilt_indexes: int = 0
    checks: tuple[str, ...] = ()
    samples: int = 0
    is_from_bucket: bool = False
    problem: str = ""
    remedy: str = ""
    output: str = ""

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """Return the partition with its topic id.

        Raises:
            ValueError: the topic id is none, or the name is none of a partition.
        """
        name = TopicPartition.parse(self.partition)
        return TopicIdPartition(uuid_from_text(self.topic_id), name.topic, name.partition)


@dataclass(frozen=True, slots=True)
class DrillProofs:
    """The last drill and the last proof of each partition.

    Attributes:
        last: the last drill of any outcome.
        proofs: the last drill that was a proof.
    """

    last: Mapping[TopicIdPartition, DrilledPartition]
    proofs: Mapping[TopicIdPartition, DrilledPartition]

    @classmethod
    def of(cls, drills: Iterable[DrilledPartition]) -> Self:
        """Return those of a history, the oldest first."""
        last: dict[TopicIdPartition, DrilledPartition] = {}
        proofs: dict[TopicIdPartition, DrilledPartition] = {}
        for each in drills:
            partition = each.topic_id_partition
            last[partition] = each
            if each.outcome.is_proof:
                proofs[partition] = each
        return cls(last, proofs)

    def after(self, drilled: DrilledPartition) -> Self:
        """Return the drills and proofs after one more drill."""
        partition = drilled.topic_id_partition
        proofs = {**self.proofs, partition: drilled} if drilled.outcome.is_proof else self.proofs
        return type(self)({**self.last, partition: drilled}, proofs)

    def proven_until_ms(self, partition: TopicIdPartition) -> int:
        """Return the moment whose tier content of the partition is proven to come back; 0 without a proof."""
        proof = self.proofs.get(partition)
        return 0 if proof is None else proof.began_ms

    @property
    def last_proof_ms(self) -> int | None:
        """Return the end of the newest proof of any partition; None without one."""
        return max((each.ended_ms for each in self.proofs.values()), default=None)


def rotation(candidates: Iterable[TopicIdPartition], proofs: DrillProofs) -> list[TopicIdPartition]:
    """Return the candidates in the order in which drills take them: never drilled first, then the oldest drill.

    A partition whose last drill was no proof waits for its turn like the others. Otherwise a few partitions that
    always fail would keep all others from being drilled.
    """

    def rank(partition: TopicIdPartition) -> tuple[int, TopicIdPartition]:
        last = proofs.last.get(partition)
        return (-1 if last is None else last.began_ms, partition)

    return sorted(candidates, key=rank)
