"""The survey of one segment for a repair: its sound batches, its first fault, and its indexes made from the batches."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tierd.errors import CorruptIndexError, CorruptRecordError, LogError
from tierd.log.files.disk import Disk, Readable, read_artefact, read_file
from tierd.log.files.partition_scan import file_name
from tierd.log.indexes.index_build import IndexBuilder
from tierd.log.indexes.offset_index import ENTRY as OFFSET_ENTRY
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import ENTRY as TIME_ENTRY
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import ENTRY as TRANSACTION_ENTRY
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex, encode_entry
from tierd.log.loading.artefact_checks import EpochCheck, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from tierd.log.log_errors import EndMarkerError, InvalidTransactionStateError
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.log.producers.transactions import CompletedTransaction, EndMarker, read_end_marker
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.batch_walk import BatchFault, DamagedBatch, NoBatch, walk
from tierd.log.records.log_config import LogConfig
from tierd.log.records.record import ControlRecordType
from tierd.log.repair.facts import Artefact, Disorder, Fault, FaultKind, SegmentFacts
from tierd.log.repair.sound_batch_search import find_sound_batch
from tierd.model import EpochEntry, Lineage

IndexT = TypeVar("IndexT", OffsetIndex, TimeIndex)

_IT = "it"
_MAX_MARKER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPartition:
    """A partition directory under survey: the same for each of its segments.

    Attributes:
        names: the names in the directory.
        config: the settings of the log, for the new indexes.
        lineage: the content of ``leader-epoch-checkpoint``; None when the file cannot be read.
        stop_at: the log has to end before the batch that holds this offset or follows it; None for no such end.
    """

    disk: Disk
    directory: Path
    names: frozenset[str]
    config: LogConfig
    lineage: Lineage | None
    stop_at: int | None


class SegmentSurvey:
    """One survey of one segment. ``run`` blocks and changes nothing.

    Attributes:
        producers: the producers behind the last sound batch; None when damage made them unknown.
        epochs: first offset of each leader epoch that is newer than all epochs before, as the batches say.
        epoch_problem: the first contradiction to ``leader-epoch-checkpoint``.
        newest_epoch: the highest leader epoch so far.
        epoch_disorder: the first batch whose leader epoch is below ``newest_epoch``; leaders write no such batch.
    """

    def __init__(
        self,
        partition: SurveyedPartition,
        base_offset: int,
        next_base_offset: int | None,
        *,
        producers: ProducerStateManager | None,
        newest_epoch: int,
    ) -> None:
        """Load the indexes of a segment, and note the damage in them.

        Args:
            partition: the directory of the segment.
            base_offset: of the segment.
            next_base_offset: base of the next segment; None for the active segment.
            producers: the producers at the base of the segment; None when they are not known.
            newest_epoch: the highest leader epoch of the batches below the base; -1 without such an epoch.
        """
        self.producers = producers
        self.epochs: list[EpochEntry] = []
        self.epoch_problem: str | None = None
        self.newest_epoch = newest_epoch
        self.epoch_disorder: Disorder | None = None
        self._partition = partition
        self._base = base_offset
        self._next_base = next_base_offset
        self._stop_at = partition.stop_at
        self._expected = base_offset
        self._max_timestamp_ms, self._shallow_offset = -1, base_offset
        config, lineage = partition.config, partition.lineage
        self._builder = IndexBuilder(
            base_offset, interval_bytes=config.index_interval_bytes, max_bytes=config.segment_index_bytes
        )
        self._epoch_check = EpochCheck(Lineage() if lineage is None else lineage)
        self._problems: dict[str, str] = {}
        self._aborted: list[AbortedTransaction] = []
        offsets, times = self._load(".index", OffsetIndex), self._load(".timeindex", TimeIndex)
        self._offsets = None if offsets is None else OffsetIndexCheck(offsets)
        self._times = None if times is None else TimeIndexCheck(times)
        self._transactions = self._load_transactions()

    def run(self) -> SegmentFacts:
        """Walk over the segment and return the facts about it.

        Raises:
            SegmentChangedError: the log file became shorter.
            OSError: a file cannot be read.
        """
        file = self._partition.disk.open(self._path(".log"), write=False)
        try:
            fault = self._walk(file)
            if fault is not None and fault.kind is FaultKind.TORN:
                behind = find_sound_batch(file, position=fault.position + 1, expected_offset=self._expected)
                fault = replace(fault, resumes_at=behind)
            size_bytes = file.size_bytes
        finally:
            file.close()
        self._builder.finish(self._max_timestamp_ms, self._shallow_offset)
        if fault is None:
            self._finish_checks(size_bytes)
        facts = SegmentFacts(
            base_offset=self._base,
            next_base_offset=self._next_base,
            size_bytes=size_bytes,
            end_offset=self._expected,
            fault=fault,
            artefacts=tuple(self._artefacts() if fault is None else self._artefacts_of_cut(fault.position)),
            snapshot_at_end=self._snapshot() if fault is not None else None,
        )
        if fault is not None:
            self.producers = None
        return facts

    def _path(self, suffix: str) -> Path:
        return self._partition.directory / file_name(self._base, suffix)

    # The batches

    def _walk(self, source: Readable) -> Fault | None:
        position = 0
        for found in walk(source, base_offset=self._base, next_base_offset=self._next_base):
            if isinstance(found, NoBatch):
                problem = problem_text(found.error, str(source.path))
                return Fault(position, problem.removesuffix(f" at position {found.error.position}"))
            header = found.header if isinstance(found, DamagedBatch) else found
            if self._stop_at is not None and header.last_offset >= self._stop_at:
                return self._requested_end(header.position)
            if isinstance(found, DamagedBatch):
                return self._fault_of(found)
            self._take_batch(source, header)
            position = header.end_position
        if self._stop_at is not None and self._next_base is not None and self._next_base > self._stop_at:
            return self._requested_end(position)
        return None

    def _requested_end(self, position: int) -> Fault:
        return Fault(position, f"the log is to end at offset {self._stop_at}", kind=FaultKind.REQUESTED)

    def _fault_of(self, damaged: DamagedBatch) -> Fault:
        header = damaged.header
        position, base, last = header.position, header.base_offset, header.last_offset
        match damaged.faults[0]:
            case BatchFault.CHECKSUM:
                return Fault(position, f"wrong checksum of the batch of offsets {base} to {last}")
            case BatchFault.OFFSET_AGAIN:
                return Fault(position, f"offset {base} where {damaged.expected_offset} is the smallest possible")
            case BatchFault.OFFSET_OF_NEXT_SEGMENT:
                return Fault(position, f"offset {last} belongs to the segment at {self._next_base}")
            case BatchFault.OFFSET_TOO_FAR:
                return Fault(position, f"offset {last} is too far from the segment's base", kind=FaultKind.OVERFLOW)

    def _take_batch(self, source: Readable, header: BatchHeader) -> None:
        if header.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._shallow_offset = header.max_timestamp_ms, header.last_offset
        if header.position > self._builder.next_position:
            self._builder.add(header.last_offset, header.position, self._max_timestamp_ms, self._shallow_offset)
        self._expected = header.last_offset + 1
        self._follow_epoch(header)
        if self._offsets and (problem := self._offsets.follow(header)):
            self._problems.setdefault(".index", problem)
        if self._times and (problem := self._times.follow(header)):
            self._problems.setdefault(".timeindex", problem)
        if header.producer_id >= 0 and self.producers is not None:
            self._replay(source, header, self.producers)

    def _follow_epoch(self, header: BatchHeader) -> None:
        problem = self._epoch_check.follow(header)
        self.epoch_problem = self.epoch_problem or problem
        epoch = header.partition_leader_epoch
        if epoch > self.newest_epoch:
            self.epochs.append(EpochEntry(epoch, header.base_offset))
            self.newest_epoch = epoch
        elif 0 <= epoch < self.newest_epoch and self.epoch_disorder is None:
            text = f"leader epoch {epoch} at offset {header.base_offset}, behind batches of epoch {self.newest_epoch}"
            self.epoch_disorder = Disorder(file_name(self._base, ".log"), header.position, text)

    def _replay(self, source: Readable, header: BatchHeader, producers: ProducerStateManager) -> None:
        try:
            marker = _read_marker(source, header)
            aborted = producers.replay(header, marker)
        except (CorruptRecordError, EndMarkerError, InvalidTransactionStateError):
            # The batch is sound and contradicts the batches before it: from here on the producers are not known.
            self.producers = self._transactions = None
            return
        kind = None if marker is None else marker.control_type
        if self._transactions is not None and (header.is_transactional or kind is not None):
            completed = None if aborted is None else _completed(aborted)
            if problem := self._transactions.follow(header, kind, completed):
                self._problems.setdefault(".txnindex", problem)
        if kind is ControlRecordType.ABORT:
            self._note_abort(header, aborted)

    def _note_abort(self, header: BatchHeader, aborted: AbortedTransaction | None) -> None:
        """Note the index entry of an abort: the existing entry, which may know an earlier beginning, or the new one."""
        known = self._transactions.answered.get(header.last_offset) if self._transactions else None
        entry = known or aborted
        if entry is not None:
            self._aborted.append(entry)

    def _snapshot(self) -> bytes | None:
        if self.producers is None:
            return None
        return encode_producer_snapshot(tuple(each.to_snapshot() for each in self.producers.producers.values()))

    # The indexes

    def _load(self, suffix: str, kind: type[IndexT]) -> IndexT | None:
        try:
            data = self._read(suffix)
            if data is None:
                return None
            index = kind.from_bytes(data, self._base, _IT)
        except CorruptIndexError as error:
            self._problems[suffix] = problem_text(error, _IT)
            return None
        if self._next_base is not None and index.size_bytes != len(data):
            self._problems[suffix] = "zeros at the end, which a broker takes for entries"
        return index

    def _load_transactions(self) -> TransactionIndexCheck | None:
        if self.producers is None:
            return None
        name = file_name(self._base, ".txnindex")
        if name not in self._partition.names:
            return TransactionIndexCheck(TransactionIndex())
        try:
            data = read_artefact(self._partition.disk, self._partition.directory / name, name=_IT)
            whole = len(data) - len(data) % TRANSACTION_ENTRY.size
            if whole != len(data):
                self._problems[".txnindex"] = f"{len(data) - whole} bytes behind the last entry"
            return TransactionIndexCheck(TransactionIndex.from_bytes(data[:whole], self._base, _IT))
        except CorruptIndexError as error:
            self._problems[".txnindex"] = problem_text(error, _IT)
            return TransactionIndexCheck(TransactionIndex())

    def _read(self, suffix: str) -> bytes | None:
        path = self._path(suffix)
        if path.name not in self._partition.names:
            sibling = file_name(self._base, ".timeindex" if suffix == ".index" else ".index")
            if self._next_base is not None or sibling in self._partition.names:  # an active segment may have neither
                self._problems[suffix] = "missing"
            return None
        return read_artefact(self._partition.disk, path, name=_IT)

    def _finish_checks(self, size_bytes: int) -> None:
        if self._offsets:
            problem = self._offsets.finish()
            if not len(self._offsets.index) and self._builder.offsets:
                problem = f"empty, for a segment of {size_bytes} bytes"
            if problem:
                self._problems.setdefault(".index", problem)
        if self._times:
            problem = self._times.finish()
            entries = self._times.index.entries
            is_rolled = self._next_base is not None
            if is_rolled and self._max_timestamp_ms > (entries[-1].timestamp_ms if entries else -1):
                problem = problem or f"the newest timestamp, {self._max_timestamp_ms}, is not in it"
            if problem:
                self._problems.setdefault(".timeindex", problem)
        if self._transactions and (problems := self._transactions.finish()):
            self._problems.setdefault(".txnindex", problems[0])

    def _artefacts(self) -> list[Artefact]:
        """Return a new content for each index that is wrong."""
        contents = {
            ".index": bytes(self._builder.offsets),
            ".timeindex": bytes(self._builder.times),
            ".txnindex": b"".join(map(encode_entry, self._aborted)) or None,  # no entry, no file
        }
        return [
            Artefact(file_name(self._base, suffix), problem, contents[suffix])
            for suffix in contents
            if (problem := self._problems.get(suffix)) is not None and (suffix != ".txnindex" or self._transactions)
        ]

    def _artefacts_of_cut(self, position: int) -> list[Artefact]:
        """Return the indexes as they have to be once the segment ends at ``position``. Right entries stay."""
        offsets, times = bytes(self._builder.offsets), bytes(self._builder.times)
        if self._offsets and ".index" not in self._problems:
            kept = (e for e in self._offsets.index.entries() if e.position < position and e.offset < self._expected)
            offsets = b"".join(OFFSET_ENTRY.pack(offset - self._base, at) for offset, at in kept)
        if self._times and ".timeindex" not in self._problems:
            past = (entry for entry in self._times.index.entries if entry.offset < self._expected)
            times = b"".join(TIME_ENTRY.pack(entry.timestamp_ms, entry.offset - self._base) for entry in past)
        contents = {".index": offsets, ".timeindex": times}
        if self._transactions:
            contents[".txnindex"] = b"".join(map(encode_entry, self._aborted))
        found = []
        for suffix, content in contents.items():
            path = self._path(suffix)
            if self._must_change(path, content):
                problem = self._problems.get(suffix) or "cut where its segment is cut"
                found.append(Artefact(path.name, problem, content))
        return found

    def _must_change(self, path: Path, content: bytes) -> bool:
        if path.name not in self._partition.names:
            return bool(content)
        status = self._partition.disk.status(path)
        is_other_size = status is None or status.size_bytes != len(content)
        return is_other_size or read_file(self._partition.disk, path) != content


def problem_text(error: LogError, name: str) -> str:
    """Return the message of an error without the name of the file, which the caller shows."""
    return str(error).removeprefix(f"{name}: ")


def _read_marker(source: Readable, header: BatchHeader) -> EndMarker | None:
    if header.is_control and header.size_bytes > _MAX_MARKER_BYTES:
        raise CorruptRecordError(header.name, header.position, f"a marker of {header.size_bytes} bytes")
    return read_end_marker(source, header)


def _completed(aborted: AbortedTransaction) -> CompletedTransaction:
    return CompletedTransaction(aborted.producer_id, aborted.first_offset, aborted.last_offset, is_aborted=True)
