"""Verifications: questions to coordinators whether transactions are open (log-format 4.4; Kafka: VerificationGuard).

Before the first transactional batch of a producer reaches a partition, the leader asks the coordinator whether the
transaction is open. The guard is made before the question, and the append presents it. If a marker came in between, the
guard is no longer the current one, and the append is refused.
"""

from dataclasses import dataclass, field
from typing import final


@final
class VerificationGuard:
    """Equal only to itself."""

    __slots__ = ()


@dataclass(slots=True)
class VerificationEntry:
    """A verification that is under way (Kafka: VerificationStateEntry).

    Attributes:
        lowest_sequence: of the batches that asked for the verification; a batch above it would leave a gap.
    """

    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def note(self, *, sequence: int, producer_epoch: int) -> None:
        """Take note of another batch that waits for the answer."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence


@dataclass(slots=True)
class Verifications:
    """The verifications of a partition, by producer id."""

    entries: dict[int, VerificationEntry] = field(default_factory=dict)

    def start(self, producer_id: int, *, sequence: int, producer_epoch: int, now_ms: int) -> VerificationEntry:
        """Begin a verification, or join a present one."""
        entry = self.entries.setdefault(producer_id, VerificationEntry(now_ms, sequence, producer_epoch))
        entry.note(sequence=sequence, producer_epoch=producer_epoch)
        return entry

    def holds(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Return True if ``guard`` is the producer's current guard."""
        entry = self.entries.get(producer_id)
        return entry is not None and guard is entry.guard

    def clear(self, producer_id: int) -> None:
        """Forget the producer's verification, if there is one."""
        self.entries.pop(producer_id, None)

    def remove_expired(self, *, now_ms: int, after_ms: int) -> None:
        """Remove the verifications that began ``after_ms`` ago or earlier."""
        for producer_id in [pid for pid, entry in self.entries.items() if now_ms - entry.created_ms >= after_ms]:
            del self.entries[producer_id]
