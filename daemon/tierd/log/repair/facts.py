"""Facts that a survey of a partition directory finds; ``repair.plan`` decides from these facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tierd.model import Lineage, TopicPartition


class FaultKind(Enum):
    """Reason for which the walk over a segment ended before the end of its file."""

    TORN = "torn"
    """An incomplete batch, an impossible header, or a wrong checksum."""

    OVERFLOW = "overflow"
    """An offset too far from the base; an old broker wrote it."""

    REQUESTED = "requested"
    """The log is to end here."""


@dataclass(frozen=True, slots=True)
class Fault:
    """End of the sound part of a segment.

    Attributes:
        position: position of the first byte behind the sound part.
        problem: description of the damage.
        resumes_at: position of a sound batch behind the damage; None without one, as behind a torn tail.
    """

    position: int
    problem: str
    resumes_at: int | None = None
    kind: FaultKind = FaultKind.TORN


@dataclass(frozen=True, slots=True)
class Disorder:
    """A batch whose leader epoch is below one before it. No checksum covers the field, and no leader writes that."""

    name: str
    position: int
    problem: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that can be made anew from the batches.

    Attributes:
        problem: why it should be; None when it is sound.
        content: what it would be; None when it should not be there. Only given when it is needed.
    """

    name: str
    problem: str | None = None
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """One segment.

    Attributes:
        next_base_offset: where the next one begins; None for the active one.
        end_offset: one past the last sound batch.
        fault: None when every byte is sound.
        artefacts: its indexes; of a segment with a fault, as they have to be once it ends there.
        snapshot_at_end: the producers behind the last sound batch, as a file; only with a fault, and if they are known.
    """

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    end_offset: int
    fault: Fault | None = None
    artefacts: tuple[Artefact, ...] = ()
    snapshot_at_end: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition directory.

    Attributes:
        names: every name in it.
        segments: ascending by base offset.
        snapshots: those that should be at the base of a segment, and those that are there and cannot be read.
        lineage: as the file says, or as the batches say when the file is missing or wrong.
        lineage_problem: why the file should be written anew.
        epoch_disorder: the batches contradict each other, so nothing follows for the file.
        topic_id_problem: what is wrong with ``partition.metadata``.
        checkpoints: what the log dir's checkpoints say of this partition, by file name.
        disagreements: snapshots that can be read, and do not say what the batches say: (name, why).
    """

    directory: Path
    partition: TopicPartition
    names: tuple[str, ...]
    segments: tuple[SegmentFacts, ...]
    snapshots: tuple[Artefact, ...] = ()
    lineage: Lineage = field(default_factory=Lineage)
    lineage_problem: str | None = None
    epoch_disorder: Disorder | None = None
    topic_id_problem: str | None = None
    checkpoints: Mapping[str, int] = field(default_factory=dict)
    disagreements: tuple[tuple[str, str], ...] = ()
