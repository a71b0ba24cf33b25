"""The survey of a partition directory: the facts for a plan of repair. Nothing is changed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tierd.errors import CorruptIndexError
from tierd.log.files.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    load_offset_checkpoint,
    parse_lineage,
    parse_topic_id,
)
from tierd.log.files.directory import parse_directory_name
from tierd.log.files.disk import Disk, read_artefact
from tierd.log.files.partition_scan import file_name, offsets_named, parse_file_name, with_next_base
from tierd.log.log_errors import CheckpointError
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_snapshots import is_snapshot_kept
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from tierd.log.records.log_config import LogConfig
from tierd.log.repair.facts import Artefact, Disorder, FaultKind, PartitionFacts, SegmentFacts
from tierd.log.repair.segment_survey import SegmentSurvey, SurveyedPartition, problem_text
from tierd.model import EpochEntry, Lineage, TopicPartition

OnSurveyProgress = Callable[[str, int, int], None]
"""A receiver of progress: file name of the present segment, number of segments done, number of segments."""

OFFSET_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


def survey_partition(
    disk: Disk,
    directory: Path,
    *,
    config: LogConfig,
    stop_at: int | None = None,
    progress: OnSurveyProgress | None = None,
) -> PartitionFacts:
    """Read every batch of a partition, and compare every other file with the batches. Blocking. Nothing is changed.

    Args:
        disk: the disk of the directory.
        directory: of the partition.
        config: settings for the new indexes.
        stop_at: the log has to end before the batch that holds this offset or follows it; None for no such end.
        progress: receives the progress.

    Raises:
        PartitionNameError: the name of the directory is not the name of a partition.
        SegmentChangedError: another process changed the files meanwhile.
        OSError: a file cannot be read.
    """
    survey = _Survey(disk, directory, config, stop_at)
    return survey.run(progress or (lambda _name, _done, _total: None))


class _Survey:
    def __init__(self, disk: Disk, directory: Path, config: LogConfig, stop_at: int | None) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._stop_at = stop_at
        self._partition = parse_directory_name(directory.name)[0]
        self._names = tuple(disk.list_names(directory))
        self._snapshots: list[Artefact] = []
        self._disagreements: list[tuple[str, str]] = []
        self._epochs: list[EpochEntry] = []
        self._lineage: Lineage | None = None
        self._lineage_problem: str | None = None
        self._contradiction: str | None = None  # between the file and the batches
        self._newest_epoch = -1
        self._disorder: Disorder | None = None

    def run(self, progress: OnSurveyProgress) -> PartitionFacts:
        self._read_lineage()
        segments = self._walk_segments(progress)
        if (
            self._disorder is None or self._lineage_problem
        ):  # otherwise the batches contradict each other and prove nothing about the file
            self._lineage_problem = self._lineage_problem or self._contradiction
        self._check_other_snapshots({segment.base_offset for segment in segments})
        lineage = self._lineage if self._lineage and not self._lineage_problem else Lineage(tuple(self._epochs))
        checkpoints = self._checkpoints()
        return PartitionFacts(
            directory=self._directory,
            partition=self._partition,
            names=self._names,
            segments=tuple(segments),
            snapshots=self._faulty_snapshots(lineage, checkpoints.get(LOG_START_OFFSET_CHECKPOINT, 0)),
            lineage=lineage,
            lineage_problem=self._lineage_problem,
            epoch_disorder=self._disorder,
            topic_id_problem=self._topic_id_problem(),
            checkpoints=checkpoints,
            disagreements=tuple(self._disagreements),
        )

    def _walk_segments(self, progress: OnSurveyProgress) -> list[SegmentFacts]:
        bases = offsets_named(self._names, ".log")
        partition = SurveyedPartition(
            disk=self._disk,
            directory=self._directory,
            names=frozenset(self._names),
            config=self._config,
            lineage=self._lineage,
            stop_at=self._stop_at,
        )
        producers: ProducerStateManager | None = self._producers()
        segments: list[SegmentFacts] = []
        for at, (base, next_base) in enumerate(with_next_base(bases)):
            progress(file_name(base, ".log"), at, len(bases))
            producers = self._producers_at(base, producers, is_first=not at)
            survey = SegmentSurvey(partition, base, next_base, producers=producers, newest_epoch=self._newest_epoch)
            facts = survey.run()
            segments.append(facts)
            producers = survey.producers
            self._epochs += survey.epochs
            self._newest_epoch = survey.newest_epoch
            self._disorder = self._disorder or survey.epoch_disorder
            self._contradiction = self._contradiction or survey.epoch_problem
            if facts.fault is not None and facts.fault.kind is FaultKind.REQUESTED:
                break
        return segments

    # Producers

    def _producers(self, snapshot_offset: int | None = None) -> ProducerStateManager:
        return ProducerStateManager(
            self._disk,
            self._directory,
            topic_partition=self._partition,
            config=self._config,
            snapshot_offsets=() if snapshot_offset is None else (snapshot_offset,),
        )

    def _producers_at(
        self, base: int, known: ProducerStateManager | None, *, is_first: bool
    ) -> ProducerStateManager | None:
        """Return the producers at the base of a segment, from its snapshot, which may know more than the batches."""
        name = file_name(base, ".snapshot")
        if name not in self._names:
            if not is_first and known is not None:
                self._snapshots.append(Artefact(name, "missing", _encode(known)))
            return known
        problem = self._snapshot_problem(name)
        if problem is not None:
            self._snapshots.append(Artefact(name, problem, None if known is None else _encode(known)))
            return known
        loaded = self._producers(base)
        # With the clock at 0 no producer expires; the bounds keep the one snapshot that is named.
        loaded.truncate_and_reload(log_start_offset=base - 1, log_end_offset=base, now_ms=0)
        if known is not None and not is_first and (disagreement := disagreement_of(known.entries, loaded.entries)):
            self._disagreements.append((name, disagreement))
        return loaded

    def _check_other_snapshots(self, bases: set[int]) -> None:
        """Check the snapshots at no segment's base. Only the one of a clean stop, at the log end, is read."""
        for name in self._names:
            found = parse_file_name(name)
            if found and found[1] == ".snapshot" and found[0] not in bases:
                problem = self._snapshot_problem(name)
                if problem is not None:
                    self._snapshots.append(Artefact(name, problem))

    def _faulty_snapshots(self, lineage: Lineage, log_start_offset: int) -> tuple[Artefact, ...]:
        """Return what is wrong with snapshots, without those that are not there because the log keeps none."""
        return tuple(
            each
            for each in self._snapshots
            if each.name in self._names
            or is_snapshot_kept(int(each.name[:20]), log_start_offset=log_start_offset, lineage=lineage)
        )

    def _snapshot_problem(self, name: str) -> str | None:
        try:
            parse_producer_snapshot(read_artefact(self._disk, self._directory / name, name="it"), "it")
        except CorruptIndexError as error:
            return problem_text(error, "it")
        return None

    # Text files

    def _read_lineage(self) -> None:
        path = self._directory / LEADER_EPOCH_CHECKPOINT
        try:
            self._lineage = parse_lineage(read_artefact(self._disk, path, name="it"), name="it")
        except FileNotFoundError:
            self._lineage_problem = "missing"
        except (CheckpointError, CorruptIndexError) as error:
            self._lineage_problem = problem_text(error, "it")

    def _topic_id_problem(self) -> str | None:
        path = self._directory / PARTITION_METADATA
        try:
            parse_topic_id(read_artefact(self._disk, path, name="it"), name="it")
        except FileNotFoundError:
            return "missing"
        except (CheckpointError, CorruptIndexError) as error:
            return problem_text(error, "it")
        return None

    def _checkpoints(self) -> Mapping[str, int]:
        found = {}
        for name in OFFSET_CHECKPOINTS:
            offset = _read_checkpoint(self._disk, self._directory.parent / name).get(self._partition)
            if offset is not None:
                found[name] = offset
        return found


def _read_checkpoint(disk: Disk, path: Path) -> Mapping[TopicPartition, int]:
    """Read a checkpoint of the log dir. A checkpoint that cannot be read counts as empty, and is not repaired."""
    try:
        return load_offset_checkpoint(disk, path)
    except (FileNotFoundError, CheckpointError):
        return {}


def _encode(producers: ProducerStateManager) -> bytes:
    return encode_producer_snapshot(producers.entries)


def disagreement_of(replayed: Sequence[ProducerStateEntry], snapshot: Sequence[ProducerStateEntry]) -> str | None:
    """Return the contradiction between a snapshot and the batches before it; None without one.

    A snapshot may know more than the batches, because compaction removes batches. It may know less, because producers
    without an open transaction expire.
    """
    known = {entry.producer_id: entry for entry in snapshot}
    for entry in replayed:
        found = known.get(entry.producer_id)
        name = f"producer {entry.producer_id}"
        if found is None:
            if entry.current_txn_first_offset >= 0:
                return f"{name}: its transaction that is open since {entry.current_txn_first_offset} is not in it"
        elif entry.last_offset > found.last_offset:
            return f"{name}: its last batch ends at {entry.last_offset}, not at {found.last_offset}"
        elif entry.last_offset == found.last_offset and _state_of(entry) != _state_of(found):
            return f"{name}: (epoch, sequence, transaction) are {_state_of(entry)}, not {_state_of(found)}"
    return None


def _state_of(entry: ProducerStateEntry) -> tuple[int, int, int]:
    return entry.producer_epoch, entry.last_sequence, entry.current_txn_first_offset
