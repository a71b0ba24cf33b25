"""The inspection of a partition directory or a log dir: compares the files with one another."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CorruptIndexError, LogError, MissingArtefactError, PartitionNameError, SegmentChangedError
from tierd.log.files.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    read_lineage,
    read_offset_checkpoint,
)
from tierd.log.files.directory import parse_directory_name
from tierd.log.files.disk import OsDisk
from tierd.log.files.partition_scan import file_name, offsets_named, parse_file_name, with_next_base
from tierd.log.files.source import read_whole
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import ENTRY, TransactionIndex, read_transaction_index
from tierd.log.inspection.file_inspection import (
    LIMIT_BYTES,
    decode_file,
    decode_snapshot,
    decode_transaction_index,
    inspect_file,
    is_silent,
    is_temporary,
    list_names,
    offset_entry,
    time_entry,
)
from tierd.log.inspection.inspection_findings import Damage, Decoded, FileFound, InspectionFinding, Note
from tierd.log.inspection.segment_inspection import (
    IndexT,
    SegmentExpectations,
    inspect_segment,
    load_index,
)
from tierd.log.log_errors import CheckpointError
from tierd.log.producers.producer_snapshots import is_snapshot_kept
from tierd.log.producers.producer_state import read_producer_snapshot
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.log_config import LogConfig
from tierd.log.repair.partition_survey import survey_partition
from tierd.log.repair.side_files import describe_side_file, is_side_file
from tierd.model import Lineage

_MISSING = {
    PARTITION_METADATA: "run tierd repair; a broker would set the partition aside as a stray, and begin an empty one",
    LEADER_EPOCH_CHECKPOINT: "run tierd repair, which takes the epochs from the batches",
}
_RESTART = "start the broker: its recovery rebuilds the file; or fetch the segment from a replica"
_INDEXES = frozenset({".index", ".timeindex", ".txnindex"})


def inspect_path(path: Path, *, records: bool = False, deep: bool = False) -> Iterator[InspectionFinding]:
    """Decode and check a file, a partition directory or a log dir. Blocking, a finding at a time.

    Args:
        path: the file or directory.
        records: decode the records of every sound batch, and report each record.
        deep: decode the records, compare the files with new indexes and a new producer state, and report damage.

    Raises:
        SegmentChangedError: the path does not exist.
        LogDirOfflineError: the path cannot be read.
    """
    if not path.is_dir():
        return inspect_file(path, records=records, deep=deep)
    if any(parse_file_name(name) for name in list_names(path)) or (path / PARTITION_METADATA).exists():
        return _inspect_partition(path, records=records, deep=deep)
    return _inspect_log_dir(path, records=records, deep=deep)


def _inspect_log_dir(path: Path, *, records: bool, deep: bool) -> Iterator[InspectionFinding]:
    yield FileFound(path, "log dir", 0)
    for name in list_names(path):
        child = path / name
        try:
            if child.is_dir():
                yield from _inspect_child(child, records=records, deep=deep)
            elif not is_silent(name):
                yield from inspect_file(child)
        except SegmentChangedError:
            yield Note(child, "gone while it was read")
        except LogError as error:
            yield Damage(child, None, str(error), error.remedy)


def _inspect_child(child: Path, *, records: bool, deep: bool) -> Iterator[InspectionFinding]:
    try:
        parse_directory_name(child.name)
    except PartitionNameError as error:
        if child.name != "remote-log-index-cache":
            yield Note(child, f"{error}: a broker refuses to start with such a directory in its log dir")
        return
    yield from _inspect_partition(child, records=records, deep=deep)


def _inspect_partition(path: Path, *, records: bool, deep: bool) -> Iterator[InspectionFinding]:
    yield FileFound(path, "partition", 0)
    damaged: set[Path] = set()
    for finding in _inspect_files(path, records=records, deep=deep):
        if isinstance(finding, Damage):
            damaged.add(finding.path)
        yield finding
    if deep:
        yield from _tolerant(path, _compare(path, damaged))


def _compare(path: Path, damaged: set[Path]) -> Iterator[InspectionFinding]:
    """Yield the damage that only a comparison with new indexes and a new producer state shows."""
    try:
        facts = survey_partition(OsDisk(), path, config=LogConfig())
    except (PartitionNameError, OSError) as error:
        yield Note(path, f"not compared: {error}")
        return
    wrong = [each for segment in facts.segments if segment.fault is None for each in segment.artefacts]
    named = [(each.name, each.problem or "") for each in (*wrong, *facts.snapshots)]
    for name, problem in (*named, *facts.disagreements):
        if path / name not in damaged:
            yield Damage(path / name, None, problem, "tierd repair makes it anew")


def _inspect_files(path: Path, *, records: bool, deep: bool) -> Iterator[InspectionFinding]:
    names = list_names(path)
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    offsets = {suffix: offsets_named(names, suffix) for suffix in suffixes}
    for required, remedy in _MISSING.items():
        if required not in names:
            yield Damage(path / required, None, f"{path / required}: missing", remedy)
    yield from _leftovers(path, names, offsets)
    directory = _Directory(path, offsets, _lineage(path), _state_at(path, offsets), _log_start(path))
    for base, following in with_next_base(offsets[".log"]):
        yield from _tolerant(
            path / file_name(base, ".log"), directory.inspect(base, following, records=records, deep=deep)
        )
    yield from directory.check_lineage()
    for offset in offsets[".snapshot"]:
        snapshot = path / file_name(offset, ".snapshot")
        yield from _tolerant(
            snapshot, _with_heading(snapshot, "producer snapshot", decode_file(snapshot, decode_snapshot, 0))
        )
    for name in names:
        if is_side_file(name):
            yield Note(path / name, describe_side_file(name))
        elif parse_file_name(name) is None and not is_silent(name) and not is_temporary(name):
            yield from _tolerant(path / name, inspect_file(path / name))


@dataclass(slots=True)
class _Directory:
    path: Path
    offsets: dict[str, list[int]]
    lineage: Lineage | None
    transactions: OpenTransactions
    log_start_offset: int
    log_end_offset: int | None = None

    def inspect(self, base: int, following: int | None, *, records: bool, deep: bool) -> Iterator[InspectionFinding]:
        """Inspect one segment with its indexes. The next segment goes on from the open transactions and the log end."""
        expected = SegmentExpectations(
            base_offset=base,
            next_base_offset=following,
            log_start_offset=self.log_start_offset,
            lineage=self.lineage,
            open_transactions=self.transactions,
            offset_index_path=self.path / file_name(base, ".index"),
            time_index_path=self.path / file_name(base, ".timeindex"),
            transaction_index_path=self.path / file_name(base, ".txnindex"),
        )
        is_active = following is None
        yield from self._missing(base, is_active=is_active)
        yield from self._load(expected, is_active=is_active)
        log = self.path / file_name(base, ".log")
        yield FileFound(log, "segment", log.stat().st_size)
        self.log_end_offset = base
        for finding in inspect_segment(log, expected, records=records, deep=deep):
            if isinstance(finding, Decoded) and finding.kind == "batch":
                last = finding.fields["lastOffset"]
                assert isinstance(last, int)
                self.log_end_offset = last + 1
            yield finding

    def check_lineage(self) -> Iterator[InspectionFinding]:
        latest = self.lineage.latest if self.lineage else None
        if latest and self.log_end_offset is not None and latest.start_offset > self.log_end_offset:
            file = self.path / LEADER_EPOCH_CHECKPOINT
            problem = (
                f"{file}: epoch {latest.epoch} starts at {latest.start_offset}, the log ends at {self.log_end_offset}"
            )
            yield Damage(file, None, problem, "start the broker: it cuts the file at the end of the log")

    def _missing(self, base: int, *, is_active: bool) -> Iterator[InspectionFinding]:
        present = {suffix: base in self.offsets[suffix] for suffix in (".index", ".timeindex")}
        # Both files of an active segment are created when they are first written to.
        if not is_active or any(present.values()):
            for suffix in (suffix for suffix, there in present.items() if not there):
                file = self.path / file_name(base, suffix)
                yield Damage(file, None, f"{file}: missing", _RESTART)
        is_kept = is_snapshot_kept(base, log_start_offset=self.log_start_offset, lineage=self.lineage)
        if is_kept and base != self.offsets[".log"][0] and base not in self.offsets[".snapshot"]:
            file = self.path / file_name(base, ".snapshot")
            yield Damage(file, None, f"{file}: missing", _RESTART)

    def _load(self, expected: SegmentExpectations, *, is_active: bool) -> Iterator[InspectionFinding]:
        offset_path, time_path = expected.offset_index_path, expected.time_index_path
        assert offset_path is not None
        assert time_path is not None
        base = expected.base_offset
        expected.offset_index = yield from self._read_index(offset_path, OffsetIndex, base, is_active=is_active)
        if expected.offset_index is not None:
            yield from map(offset_entry, expected.offset_index.entries())
        expected.time_index = yield from self._read_index(time_path, TimeIndex, base, is_active=is_active)
        if expected.time_index is not None:
            yield from map(time_entry, expected.time_index.entries)
        if (
            expected.offset_index is not None
            and expected.time_index is not None
            and len(expected.time_index) > len(expected.offset_index) + 1
        ):
            # Every clean stop adds an entry to the time index alone, so this proves nothing.
            counts = f"{len(expected.offset_index)} entries where the time index has {len(expected.time_index)}"
            yield Note(
                offset_path, f"{counts}: after many restarts that is as it should be, otherwise some are missing"
            )
        yield from self._load_transactions(expected)

    def _read_index(
        self, path: Path, kind: type[IndexT], base: int, *, is_active: bool
    ) -> Generator[InspectionFinding, None, IndexT | None]:
        """Read an index; return None for an index that is missing or damaged."""
        if base not in self.offsets[path.suffix]:
            return None
        yield FileFound(path, "offset index" if kind is OffsetIndex else "time index", path.stat().st_size)
        try:
            data = read_whole(path, limit_bytes=LIMIT_BYTES, error=CorruptIndexError)
            return load_index(kind, path, data, base_offset=base, is_active=is_active)
        except CorruptIndexError as error:
            yield Damage(path, None, str(error), error.remedy)
            return None

    def _load_transactions(self, expected: SegmentExpectations) -> Iterator[InspectionFinding]:
        path = expected.transaction_index_path
        assert path is not None
        expected.transaction_index = TransactionIndex()
        if expected.base_offset not in self.offsets[".txnindex"]:
            return
        decoded = decode_file(path, decode_transaction_index, expected.base_offset)
        yield from _with_heading(path, "transaction index", decoded)
        try:
            expected.transaction_index = read_transaction_index(path, base_offset=expected.base_offset)
        except CorruptIndexError:
            expected.transaction_index = None  # the decoder has reported the damage
            return
        if rest := path.stat().st_size % ENTRY.size:
            yield Damage(path, None, f"{path}: {rest} bytes behind the last entry", _RESTART)


def _with_heading(path: Path, kind: str, findings: Iterator[InspectionFinding]) -> Iterator[InspectionFinding]:
    yield FileFound(path, kind, path.stat().st_size)
    yield from findings


def _tolerant(path: Path, findings: Iterator[InspectionFinding]) -> Iterator[InspectionFinding]:
    """Yield findings. A file that vanishes under a running broker is no damage. An unreadable file is damage."""
    try:
        yield from findings
    except (SegmentChangedError, FileNotFoundError):
        yield Note(path, "gone while it was read")
    except LogError as error:
        yield Damage(path, None, str(error), error.remedy)


def _leftovers(path: Path, names: list[str], offsets: dict[str, list[int]]) -> Iterator[InspectionFinding]:
    segments = set(offsets[".log"])
    for name in names:
        file, (offset, suffix) = path / name, parse_file_name(name) or (0, "")
        if suffix == ".log.swap":
            problem = f"{file}: a replacement of segments that is not finished; offsets from there on are missing"
            yield Damage(file, None, problem, "start the broker: it finishes the replacement")
        elif is_temporary(name):
            yield Note(file, "temporary; the broker removes it")
        elif suffix in _INDEXES and offset not in segments:
            problem = f"{file}: no segment has this base offset; its .log may be lost"
            yield Damage(file, None, problem, "look for the .log on a replica; the broker will remove the index")
        elif suffix == ".snapshot" and offset not in segments and offset < max(segments, default=0):
            yield Note(file, "no segment begins here; the broker removes it at its next start")


def _lineage(path: Path) -> Lineage | None:
    try:
        return read_lineage(path)
    except MissingArtefactError:
        return None  # the missing file is reported already
    except CheckpointError:
        return None  # the inspection of the file itself reports the damage


def _log_start(path: Path) -> int:
    """Return the log start that the checkpoint of the log dir has; 0 without one."""
    try:
        starts = read_offset_checkpoint(path.parent / LOG_START_OFFSET_CHECKPOINT)
        return starts.get(parse_directory_name(path.name)[0], 0)
    except (LogError, PartitionNameError):
        return 0  # a log dir's inspection reports a damaged checkpoint


def _state_at(path: Path, offsets: dict[str, list[int]]) -> OpenTransactions:
    """Return the transactions that were open at the log start, as far as a snapshot tells."""
    if not offsets[".log"] or offsets[".log"][0] not in offsets[".snapshot"]:
        return OpenTransactions()
    try:
        return OpenTransactions.from_snapshot(read_producer_snapshot(path / file_name(offsets[".log"][0], ".snapshot")))
    except LogError:
        return OpenTransactions()
