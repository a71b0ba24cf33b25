"""Log that is written like any other, and cleaned by our rounds instead of the cleaner of a broker."""

from pathlib import Path

from tests.log.logs import NOW_MS, lead, lead_marker, open_log
from tests.pipeline.rewriting.rounds import DAY_MS, Round
from tierd.log import (
    AbortedTransaction,
    AppendOrigin,
    NewRecord,
    Producer,
    RecordBatch,
    TransactionIndex,
    encode_batch,
    iter_batches,
)
from tierd.log.partition.append_info import AppendInfo
from tierd.pipeline.rewriting import RewriteStatistics

LATER_MS = NOW_MS + 2 * DAY_MS  # the horizons of a round at NOW_MS are past


class CompactedLog:
    """Log in ``folder``; the key of every record is the text of a number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sequences: dict[int, int] = {}
        self.log = open_log(folder)

    @property
    def directory(self) -> Path:
        return self.log.directory

    def write(
        self, *keys: int, producer_id: int = -1, transactional: bool = False, value: bytes | None = b"value"
    ) -> AppendInfo:
        """Append a batch with a record for each key."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(keys)
        producer = Producer(producer_id, 0, sequence) if producer_id >= 0 else Producer()
        return self.send(
            [NewRecord(b"%d" % key, value, NOW_MS) for key in keys], producer=producer, transactional=transactional
        )

    def send(
        self,
        records: list[NewRecord],
        *,
        producer: Producer = Producer(),  # noqa: B008 frozen
        transactional: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        return self.append(encode_batch(records, producer=producer, is_transactional=transactional), origin=origin)

    def append(self, batch: bytes, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        return lead(self.log, batch, origin=origin)

    def in_transaction(self, producer_id: int, *keys: int) -> AppendInfo:
        return self.write(*keys, producer_id=producer_id, transactional=True)

    def commit(self, producer_id: int) -> AppendInfo:
        return lead_marker(self.log, producer_id, commit=True)

    def abort(self, producer_id: int) -> AppendInfo:
        return lead_marker(self.log, producer_id, commit=False)

    def roll(self) -> None:
        self.log.roll(now_ms=NOW_MS)

    def clean(self, now_ms: int = NOW_MS, *, is_grouped: bool = True) -> RewriteStatistics:
        """Clean every rolled segment, into one output or one each, and load the log again."""
        bases = [segment.base_offset for segment in self.log.segments][:-1]
        return self.run(Round(now_ms=now_ms, group_bases=bases[:1] if is_grouped else bases))

    def run(self, cleaning: Round) -> RewriteStatistics:
        self.log.close()
        outputs = cleaning.run(self.directory, self._folder / "scratch")
        self.log = open_log(self._folder)
        total = RewriteStatistics()
        for output in outputs:
            total.add(output.statistics)
        return total

    # Content of the log

    def batches(self) -> list[RecordBatch]:
        paths = sorted(self.directory.glob("[0-9]*.log"))
        return [batch for path in paths for batch in iter_batches(path.read_bytes(), name=path.name)]

    def keys(self) -> list[int]:
        """Return the keys of all data records but tombstones."""
        records = (record for batch in self.batches() if not batch.is_control for record in batch.records())
        return [int(record.key) for record in records if record.key is not None and record.value is not None]

    def offsets(self) -> list[int]:
        """Return the offsets of all records, with markers."""
        return [record.offset for batch in self.batches() for record in batch.records()]

    def last_offsets(self) -> list[int]:
        """Return the last offsets of all batches, with empty ones."""
        return [batch.last_offset for batch in self.batches()]

    def last_sequences(self) -> dict[int, int]:
        return {b.producer_id: b.last_sequence for b in self.batches() if b.producer_id >= 0 and not b.is_control}

    def aborted(self) -> list[AbortedTransaction]:
        """Return the entries of the transaction indexes."""
        paths = sorted(self.directory.glob("*.txnindex"))
        indexes = (TransactionIndex.from_bytes(path.read_bytes(), int(path.stem), path.name) for path in paths)
        return [entry for index in indexes for entry in index.entries]
