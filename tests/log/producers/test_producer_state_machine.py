"""The producer state compared with a model that keeps the whole log and derives the state anew."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.log.producer_steps import ABORT, CLIENT, COMMIT, COORDINATOR, MAX_INT, NOW_MS, data, manager_of
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.log_errors import AppendError
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import EndMarker
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import LogConfig

EXPIRATION_MS = 100
producer_ids, deltas = st.integers(1, 3), st.sampled_from([0, 0, 0, 1, -1])


@dataclass
class Known:
    """The state of one producer that follows from the log."""

    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp_ms: int = -1
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first and last sequence, last offset
    open_since: int | None = None

    def enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, []


@dataclass
class Decided:
    first_offset: int
    marker_offset: int


Entry = tuple[BatchHeader, EndMarker | None]


def work_out(entries: list[Entry]) -> tuple[dict[int, Known], list[Decided], list[AbortedTransaction]]:
    """Return producers, decided transactions and transaction index of a log, from its first batch on."""
    producers: dict[int, Known] = {}
    decided: list[Decided] = []
    aborted: list[AbortedTransaction] = []
    for header, marker in entries:
        if header.producer_id < 0:
            continue
        known = producers.setdefault(header.producer_id, Known())
        known.enter(header.producer_epoch)
        known.timestamp_ms = header.max_timestamp_ms
        if marker is None:
            known.batches.append((header.base_sequence, header.last_sequence, header.last_offset))
            if header.is_transactional and known.open_since is None:
                known.open_since = header.base_offset
            continue
        known.coordinator_epoch = marker.coordinator_epoch
        if known.open_since is not None:
            decided.append(Decided(known.open_since, header.base_offset))
            began, known.open_since = known.open_since, None
            if marker.control_type is ABORT:
                others = [k.open_since for k in producers.values() if k.open_since is not None]
                stable = min(others, default=header.base_offset + 1)
                aborted.append(AbortedTransaction(header.producer_id, began, header.base_offset, stable))
    return producers, decided, aborted


class ProducerStateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.config = LogConfig(producer_id_expiration_ms=EXPIRATION_MS)
        self.manager: ProducerStateManager = manager_of(self.folder, self.config)
        self.entries: list[Entry] = []
        self.aborted: list[AbortedTransaction] = []
        self.now_ms = NOW_MS
        self.high_watermark = 0
        self.loaded_from = 0  # transactions decided below this offset are not unstable any more
        self.forgotten: dict[int, int] = {}  # producer id to the number of entries when it expired
        self.snapshots: dict[int, dict[int, int]] = {}  # offset to the producers that were forgotten there

    @initialize()
    def begin(self) -> None:
        self.manager.truncate_and_reload(log_start_offset=0, log_end_offset=0, now_ms=self.now_ms)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def end(self) -> int:
        return self.entries[-1][0].last_offset + 1 if self.entries else 0

    def known(self) -> dict[int, Known]:
        """Return the producers of the log that did not expire, with their entries since they came back."""
        producers: dict[int, Known] = {}
        for producer_id in {header.producer_id for header, _ in self.entries} - {-1}:
            since = self.forgotten.get(producer_id, 0)
            mine = [entry for entry in self.entries[since:] if entry[0].producer_id == producer_id]
            producers |= work_out(mine)[0]
        return producers

    def forget_expired(self) -> None:
        for producer_id, known in self.known().items():
            if known.open_since is None and self.now_ms - known.timestamp_ms >= EXPIRATION_MS:
                self.forgotten[producer_id] = len(self.entries)

    def is_refused(self, header: BatchHeader, marker: EndMarker | None) -> bool:
        known = self.known().get(header.producer_id, Known())
        if header.producer_epoch < known.epoch:
            return True
        if marker is not None:
            return marker.coordinator_epoch < known.coordinator_epoch
        if known.open_since is not None and not header.is_transactional:
            return True
        if known.epoch == -1:
            return False
        is_new = header.producer_epoch > known.epoch or not known.batches
        expected = 0 if is_new else (known.batches[-1][1] + 1) % (MAX_INT + 1)
        return header.base_sequence != expected

    @rule(
        producer_id=producer_ids,
        count=st.integers(1, 3),
        gap=deltas,
        newer=deltas,
        transactional=st.booleans(),
    )
    def produce(self, producer_id: int, count: int, gap: int, newer: int, transactional: bool) -> None:
        known = self.known().get(producer_id, Known())
        follows = known.batches[-1][1] + 1 if known.batches else MAX_INT if producer_id == 3 else 0
        header = data(
            self.end,
            max(follows + gap, 0) & MAX_INT,
            count=count,
            producer_id=producer_id,
            epoch=max(known.epoch + newer, 0),
            transactional=transactional or (known.open_since is not None and gap == 0),
            timestamp_ms=self.now_ms,
        )
        self.append(header, None)

    @rule(producer_id=producer_ids, newer=deltas, coordinator=deltas, is_abort=st.booleans())
    def mark(self, producer_id: int, newer: int, coordinator: int, is_abort: bool) -> None:
        known = self.known().get(producer_id, Known())
        header = data(
            self.end,
            -1,
            producer_id=producer_id,
            epoch=max(known.epoch + newer, 0),
            transactional=True,
            control=True,
            timestamp_ms=self.now_ms,
        )
        epoch = max(known.coordinator_epoch + coordinator, 0)
        self.append(header, EndMarker(ABORT if is_abort else COMMIT, epoch))

    def append(self, header: BatchHeader, marker: EndMarker | None) -> None:
        prepared = self.manager.prepare_update(header.producer_id, CLIENT if marker is None else COORDINATOR)
        try:
            completed = prepared.append(header, None, marker)
        except AppendError:
            assert self.is_refused(header, marker)
            return
        assert not self.is_refused(header, marker)
        self.manager.update(prepared)
        if completed is not None:
            index_entry = self.manager.index_entry(completed)
            self.aborted += [] if index_entry is None else [index_entry]
            self.manager.complete(completed)
        self.manager.update_map_end_offset(header.last_offset + 1)
        self.entries.append((header, marker))

    @rule(count=st.integers(1, 3))
    def append_without_a_producer(self, count: int) -> None:
        header = data(self.end, -1, producer_id=-1, count=count)
        self.manager.update_map_end_offset(header.last_offset + 1)
        self.entries.append((header, None))

    @rule(steps=st.integers(0, 5))
    def replicate(self, steps: int) -> None:
        self.high_watermark = min(self.high_watermark + steps, self.end)
        self.manager.on_high_watermark_updated(self.high_watermark)

    @rule(sync=st.booleans())
    def take_snapshot(self, sync: bool) -> None:
        taken = self.manager.take_snapshot(sync=sync)
        assert (taken is not None) == (self.end > 0 and self.end not in self.snapshots)
        if taken is not None:
            self.snapshots[self.end] = dict(self.forgotten)

    @rule(step_ms=st.integers(1, EXPIRATION_MS))
    def let_time_pass(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.manager.remove_expired(self.now_ms)
        self.forget_expired()

    @rule(back=st.integers(0, 4), restarts=st.booleans(), damages=st.booleans())
    def go_back(self, back: int, restarts: bool, damages: bool) -> None:
        """Truncate to a batch's end, or stop and start; the newest snapshot may be damaged before."""
        if not restarts and not back:
            return
        self.entries = self.entries[: len(self.entries) - back]
        end = self.end
        left = self.snapshots = {offset: forgotten for offset, forgotten in self.snapshots.items() if offset <= end}
        if damages and left:
            path = self.manager.snapshots.path(max(left))
            path.write_bytes(path.read_bytes()[:-1])
            del left[max(left)]
        if restarts:
            self.manager = manager_of(self.folder, self.config)
            self.manager.update_map_end_offset(-1)
        self.manager.truncate_and_reload(log_start_offset=0, log_end_offset=end, now_ms=self.now_ms)
        self.loaded_from = self.manager.map_end_offset
        assert self.loaded_from == max(left, default=0)
        assert set(self.manager.snapshots.offsets) == set(left)
        self.replay()

    def replay(self) -> None:
        """Replay from the snapshot on: only producers that had expired when the snapshot was read are expired."""
        entries, self.entries = self.entries, [e for e in self.entries if e[0].last_offset < self.loaded_from]
        self.forgotten = dict(self.snapshots.get(self.loaded_from, {}))
        self.forget_expired()
        for entry in entries[len(self.entries) :]:
            self.manager.replay(*entry)
        self.entries = entries
        self.manager.update_map_end_offset(self.end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.manager.on_high_watermark_updated(self.high_watermark)
        self.aborted = [entry for entry in self.aborted if entry.last_offset < self.end]

    @invariant()
    def the_producers_are_those_of_the_log(self) -> None:
        model = self.known()
        assert set(self.manager.producers) == set(model)
        for producer_id, known in model.items():
            actual = self.manager.producers[producer_id]
            assert (actual.producer_epoch, actual.coordinator_epoch) == (known.epoch, known.coordinator_epoch)
            assert actual.last_timestamp_ms == known.timestamp_ms
            assert actual.current_txn_first_offset == (-1 if known.open_since is None else known.open_since)
            assert len(actual.batches) <= 5
            batches = [(b.first_sequence, b.last_sequence, b.last_offset) for b in actual.batches]
            assert batches == known.batches[len(known.batches) - len(batches) :]
            assert bool(batches) == bool(known.batches)

    @invariant()
    def unstable_transactions_are_open_or_unreplicated(self) -> None:
        producers, decided, aborted = work_out(self.entries)
        ongoing = [known.open_since for known in producers.values() if known.open_since is not None]
        held = [d.first_offset for d in decided if d.marker_offset >= max(self.high_watermark, self.loaded_from)]
        first = self.manager.first_unstable_offset
        assert (None if first is None else first.offset) == min(ongoing + held, default=None)
        assert self.aborted == aborted


TestProducerState = ProducerStateMachine.TestCase
TestProducerState.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
