"""Any growing log, compacted by any runs with any failures: readers end up with the records that were written."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import accumulate, pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.remote_segments import FINISHED, PARTITION, segment
from tests.pipeline.committing.written_log import HOUR_MS, START_MS, Piece, Written
from tierd.errors import TierError
from tierd.kernels import latest_per_key
from tierd.log import TransactionIndex
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.committing.round import GroupState, PartitionRound
from tierd.pipeline.jobs.prospects import Rewrite, compaction_prospects
from tierd.pipeline.jobs.scanning import InputNote
from tierd.pipeline.jobs.task_layout import GroupPlace, InputPlace
from tierd.pipeline.planning import PartitionWork, WorkKind
from tierd.pipeline.planning.work_order import Group
from tierd.pipeline.rewriting import (
    InputLog,
    OffsetSet,
    RewriteRules,
    RewrittenSegment,
    TransactionTrace,
    rewrite_group,
    scan_keys,
)
from tierd.pipeline.rewriting.transaction_pass import AbortedTransactions

RETENTION_MS = 20 * HOUR_MS
SECRET = bytes(16)

KEYS = st.lists(st.integers(0, 2), min_size=1, max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, st.booleans(), st.integers(0, 40)),
        st.tuples(st.just("transactional"), st.integers(1, 2), KEYS, st.booleans()),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("roll")),
    ),
    min_size=1,
    max_size=25,
)
Answer = tuple[int, bytes | None, int]
"""What a reader has of a key: offset, value, timestamp."""


def answers(pieces: list[Piece], below: int) -> dict[bytes, Answer]:
    """Return the final record of every key for a reader of committed records, with tombstones."""
    aborted = AbortedTransactions.of(entry for piece in pieces for entry in piece.aborted)
    found: dict[bytes, Answer] = {}
    reached = -1
    for piece in pieces:
        for batch in piece.batches():
            assert batch.base_offset > reached, "offsets go back"
            reached = batch.last_offset
            if batch.is_control or aborted.is_aborted(batch) or batch.base_offset >= below:
                continue
            for record in batch.records():
                assert record.key is not None
                found[record.key] = (record.offset, record.value, record.timestamp_ms)
    return found


class Tier:
    """Beginning of a log, compacted by any runs."""

    def __init__(self, log: Written, folder: Path, *, broken: int | None) -> None:
        """Begin an empty tier; ``broken`` is the number of a segment that cannot be decoded."""
        self.log = log
        self.broken = log.pieces[broken % len(log.pieces)].start if broken is not None else -1
        self.count = 0
        self.pieces: list[Piece] = []
        self.now_ms = START_MS
        self.newest_cutoff_ms = -1
        self._folder = folder

    def copy(self, count: int) -> None:
        """Copy the first ``count`` segments of the log, the existing ones in their present form."""
        self.pieces += self.log.pieces[self.count : count]
        self.count = max(count, self.count)

    def check(self) -> None:
        """Check that readers get the written records, without tombstones past their time and expired records."""
        stable = self.log.stable(self.count)
        expected, found = answers(self.log.pieces[: self.count], stable), answers(self.pieces, stable)
        assert found.keys() <= expected.keys()
        for key, answer in expected.items():
            if answer[1] is None or answer[2] < self.newest_cutoff_ms:
                assert found.get(key) in (answer, None)
            else:
                assert found[key] == answer

    def run(self, data: st.DataObject) -> None:
        """Run once, with some failures."""
        stable = self.log.stable(self.count)
        inputs = [piece for piece in self.pieces if piece.end < stable]
        inputs = inputs[: data.draw(st.integers(0, len(inputs)), "inputs")] if data.draw(st.booleans()) else inputs
        if not inputs:
            return
        cutoff_ms = data.draw(st.sampled_from([None, START_MS - 10 * HOUR_MS]), "expire before")
        self.newest_cutoff_ms = max(self.newest_cutoff_ms, -1 if cutoff_ms is None else cutoff_ms)
        work = self._work(inputs, _groups(data, len(inputs)), cutoff_ms)
        rules = RewriteRules(
            now_ms=self.now_ms,
            delete_retention_ms=work.delete_retention_ms,
            compacts=True,
            aborted=work.aborted,
            producers=work.live_producers(),
            round_end_offset=work.round_end_offset,
            expire_before_ms=cutoff_ms,
        )
        torn = data.draw(st.sets(st.integers(0, len(inputs) - 1), max_size=1), "torn")
        torn_at = {place: data.draw(st.integers(0, inputs[place].size_bytes)) for place in torn if inputs[place].log}
        notes, latest = _scan(inputs, rules, torn_at)
        counts = {
            GroupPlace(0, number): sum(inputs[first].start <= offset <= inputs[last].end for offset in latest)
            for number, (first, last) in enumerate(work.groups)
        }
        round_ = PartitionRound(work)
        outputs: dict[int, Piece] = {}
        for place, prospect in sorted(compaction_prospects(work, notes, counts).items()):
            number, (first, last) = place.group, work.groups[place.group]
            members = inputs[first : last + 1]
            fails = members[0].start <= self.broken <= members[-1].end or not data.draw(st.integers(0, 4), "goes well")
            if fails or not isinstance(prospect, Rewrite):
                round_.move(number, GroupState.LEFT)
                continue
            new = self._rewritten(members, rules, latest, prospect.open_producers)
            if round_.why_not_commit(number, asdict(new.statistics)) is not None:
                round_.move(number, GroupState.LEFT)
                continue
            round_.move(number, GroupState.DONE)
            outputs[number] = _piece(members, new)
            self._replace(members, outputs[number])
            self.check()

    def _work(self, inputs: list[Piece], groups: tuple[Group, ...], cutoff_ms: int | None) -> PartitionWork:
        end = inputs[-1].end + 1
        aborted = {entry for piece in self.pieces for entry in piece.aborted if entry.first_offset < end}
        return PartitionWork(
            index=0,
            partition=PARTITION,
            kind=WorkKind.COMPACT,
            inputs=tuple(
                replace(segment(piece.start, piece.end, size_bytes=len(piece.log)), state=FINISHED) for piece in inputs
            ),
            groups=groups,
            first_dirty_offset=0,
            round_end_offset=end,
            delete_retention_ms=RETENTION_MS,
            producer_snapshot=encode_producer_snapshot(tuple(self.log.producers[self.count - 1].values())),
            expire_before_ms=cutoff_ms,
            aborted=tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
        )

    def _rewritten(
        self, members: list[Piece], rules: RewriteRules, latest: np.ndarray, open_producers: frozenset[int]
    ) -> RewrittenSegment:
        start, end = members[0].start, members[-1].end + 1
        return rewrite_group(
            [InputLog(name="x", start_offset=m.start, end_offset=m.end, pieces=m.pieces()) for m in members],
            rules,
            OffsetSet.of(start, end, latest[(latest >= start) & (latest < end)]),
            base_offset=start,
            output=self._folder / f"{uuid4()}.log",
            input_snapshot=b"",
            input_epochs=b"",
            open_producers=open_producers,
        )

    def _replace(self, members: list[Piece], output: Piece) -> None:
        at = self.pieces.index(members[0])
        self.pieces[at : at + len(members)] = [output]


def _piece(members: list[Piece], new: RewrittenSegment) -> Piece:
    content = new.data.transaction_index
    entries = TransactionIndex.from_bytes(content, members[0].start, "new").entries if content else ()
    assert new.txn_index_empty == (not entries)
    return Piece(members[0].start, members[-1].end, new.data.log.read_bytes(), entries)


def _groups(data: st.DataObject, inputs: int) -> tuple[Group, ...]:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=inputs, max_size=inputs), "groups")
    bounds = [0, *(bound for bound in accumulate(sizes) if bound < inputs), inputs]
    return tuple(Group(first, following - 1) for first, following in pairwise(bounds))


def _scan(
    inputs: list[Piece], rules: RewriteRules, torn_at: Mapping[int, int]
) -> tuple[dict[InputPlace, InputNote], np.ndarray]:
    """Scan all inputs; some of them cannot be read behind some byte."""
    notes: dict[InputPlace, InputNote] = {}
    columns = [tuple(np.zeros((3, 0), dtype=np.int64))]
    for place, piece in enumerate(inputs):
        trace, keyed, problem = TransactionTrace(), 0, None
        try:
            pieces = piece.pieces(torn_at.get(place))
            for found in scan_keys(pieces, rules, name="x", secret=SECRET, step=1, trace=trace):
                keyed += len(found)
                columns.append((found.hash_hi, found.hash_lo, found.offset))
        except TierError as error:
            problem = str(error)
        notes[InputPlace(0, place)] = InputNote(InputPlace(0, place), keyed, trace, problem)
    hi, lo, offset = map(np.concatenate, zip(*columns, strict=True))
    return notes, np.sort(latest_per_key(hi, lo, offset)[2])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_readers_get_the_written_records_after_any_runs_and_failures(data: st.DataObject) -> None:
    log = Written.of(data.draw(STEPS, "log"))
    with tempfile.TemporaryDirectory() as folder:
        tier = Tier(log, Path(folder), broken=data.draw(st.one_of(st.none(), st.integers(0, 9)), "broken"))
        for _ in range(data.draw(st.integers(1, 5), "runs")):
            tier.copy(data.draw(st.integers(max(1, tier.count), len(log.pieces)), "segments"))
            tier.check()
            tier.run(data)
            tier.check()
            tier.now_ms += data.draw(st.sampled_from([30 * HOUR_MS, HOUR_MS, -HOUR_MS]), "time goes on")
