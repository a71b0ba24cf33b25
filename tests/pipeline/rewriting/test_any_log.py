"""Cleaning of any log: invariants over any records, order and groups."""

import shutil
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.logs import NOW_MS
from tests.pipeline.rewriting.compacted_log import LATER_MS, CompactedLog
from tests.pipeline.rewriting.rounds import Round, aborted_in
from tierd.log import Compression, NewRecord, Producer, Record, encode_batch
from tierd.pipeline.rewriting.transaction_pass import AbortedTransactions

KEYS = st.lists(st.integers(0, 4), min_size=1, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS, st.sampled_from(Compression)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("idempotent"), st.integers(1, 2), KEYS),
    st.tuples(st.just("transactional"), st.integers(3, 5), KEYS),
    st.tuples(st.just("end"), st.integers(3, 5), st.booleans()),
    st.tuples(st.just("keyless")),
    st.tuples(st.just("roll")),
)
Step = tuple[object, ...]


def written(folder: Path, steps: list[Step]) -> CompactedLog:
    """Write the log of ``steps``, with every transaction ended and all segments rolled."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    log, sequences, began = CompactedLog(folder), dict.fromkeys(range(1, 6), 0), set[int]()
    for n, step in enumerate(steps):
        match step:
            case ("write", list(keys), Compression() as codec):
                records = [NewRecord(b"%d" % key, b"value %d" % n, NOW_MS + n) for key in keys]
                log.append(encode_batch(records, compression=codec))
            case ("delete", list(keys)):
                log.send([NewRecord(b"%d" % key, None, NOW_MS + n) for key in keys])
            case ("idempotent" | "transactional" as kind, int(producer_id), list(keys)):
                producer = Producer(producer_id, 0, sequences[producer_id])
                sequences[producer_id] += len(keys)
                records = [NewRecord(b"%d" % key, b"value %d" % n, NOW_MS + n) for key in keys]
                log.send(records, producer=producer, transactional=kind == "transactional")
                began |= {producer_id} if kind == "transactional" else set()
            case ("end", int(producer_id), bool(commits)):
                (log.commit if commits else log.abort)(producer_id)
                began.discard(producer_id)
            case ("keyless",):
                log.send([NewRecord(None, b"nobody's", NOW_MS)])
            case ("roll",):
                log.roll()
    for producer_id in sorted(began):
        log.abort(producer_id)
    log.write(0)
    log.roll()
    return log


def live(log: CompactedLog) -> list[Record]:
    """Return every data record that was not aborted."""
    aborted = AbortedTransactions.of(aborted_in(log.directory))
    batches = (batch for batch in log.batches() if not batch.is_control and not aborted.is_aborted(batch))
    return [record for batch in batches for record in batch.records()]


def latest(records: list[Record]) -> list[Record]:
    """Return the latest record of each key, in the order of the log."""
    last = {record.key: record for record in records if record.key is not None}
    return sorted(last.values(), key=lambda record: record.offset)


def content(log: CompactedLog) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("[0-9]*.log")))


def clean(log: CompactedLog, now_ms: int, groups: list[int]) -> bool:
    """Clean in groups that begin at some of the segments; return True if a file changed."""
    bases = [segment.base_offset for segment in log.log.segments][:-1]
    chosen = sorted({bases[0], *(bases[group % len(bases)] for group in groups)})
    before = content(log)
    stats = log.run(Round(now_ms=now_ms, group_bases=chosen))
    assert stats.is_unchanged == (content(log) == before)
    return not stats.is_unchanged


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=25), st.lists(st.integers(0, 9), max_size=3))
def test_latest_record_of_every_key_survives_cleaning_with_any_groups(
    tmp_path: Path, steps: list[Step], groups: list[int]
) -> None:
    one, several = written(tmp_path / "one", steps), written(tmp_path / "several", steps)
    expected, producers = latest(live(one)), one.log.producers.entries
    for _ in range(3):  # aborted data, then markers and their entries begin to wait, then nothing
        clean(one, NOW_MS, [])
        clean(several, NOW_MS, groups)
        assert content(one) == content(several)
        assert one.aborted() == several.aborted()
        assert live(one) == expected
    assert not clean(several, NOW_MS, groups)
    for _ in range(2):
        clean(one, LATER_MS, [])
        clean(several, LATER_MS, groups)
        assert content(one) == content(several)
        assert live(one) == [record for record in expected if record.value is not None]
        assert one.log.producers.entries == producers
    assert {batch.producer_id: batch.last_sequence for batch in one.batches() if not batch.is_control} | {
        -1: -1
    } == known_sequences(one)
    one.log.close()
    several.log.close()


def known_sequences(log: CompactedLog) -> dict[int, int]:
    """Return the sequences that a broker without snapshots learns from the remaining batches."""
    return {-1: -1} | {
        entry.producer_id: entry.last_sequence for entry in log.log.producers.entries if entry.last_offset >= 0
    }
