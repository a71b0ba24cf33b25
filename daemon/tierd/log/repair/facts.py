"""Facts that a survey of a partition directory finds; ``log_repair_plan`` decides from these facts."""

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
    """A batch with a leader epoch below that of an earlier batch. No leader writes it; no checksum covers the epoch."""

    name: str
    position: int
    problem: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that can be made anew from the batches.

    Attributes:
        problem: reason to make it anew; None for a sound file.
        content: the new content; None for a file that should not exist, and for a sound file.
    """

    name: str
    problem: str | None = None
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """Facts about one segment.

    Attributes:
        next_base_offset: base of the next segment; None for the active segment.
        end_offset: one past the last sound batch.
        fault: None when every byte is sound.
        artefacts: the indexes that have to change; of a segment with a fault, for a segment that ends at the fault.
        snapshot_at_end: the producers behind the last sound batch, as a file; only with a fault and known producers.
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
    """Facts about a partition directory.

    Attributes:
        names: every name in the directory.
        segments: ascending by base offset.
        snapshots: those that are missing at the base of a segment, and those that cannot be read.
        lineage: from the file, or from the batches when the file is missing or wrong.
        lineage_problem: reason to write the file anew.
        epoch_disorder: the first contradiction between batches; with one, batches prove nothing about the file.
        topic_id_problem: the fault of ``partition.metadata``.
        checkpoints: the offsets of this partition in the checkpoints of the log dir, by file name.
        disagreements: snapshots that can be read and contradict the batches: (name, contradiction).
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
