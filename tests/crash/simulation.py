"""One seeded story: a log on a machine that loses power repeatedly, compared with an oracle."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

from tests.crash.host import DIRECTORY, Host
from tests.crash.model import LogModel
from tests.crash.oracle import ProducerView
from tests.crash.workload import Workload
from tests.fakes.simulated_disk import Fault, PowerLostError
from tierd.errors import LogDirOfflineError
from tierd.log.records.log_config import LogConfig

DAY_MS = 86_400_000
_STARTS_AT_MOST = 4


class SimulationFailedError(AssertionError):
    """The log contradicted the oracle, or raised an unexpected error; the text tells how to repeat the seed."""


def random_config(choice: random.Random) -> LogConfig:
    """Return small segments and tiny indexes, so that a story of a few steps meets every limit."""
    return LogConfig(
        segment_bytes=choice.choice((2700, 4000, 8000, 20_000)),
        segment_ms=choice.choice((500, 100_000, 604_800_000)),
        segment_jitter_ms=choice.choice((0, 0, 300)),
        segment_index_bytes=choice.choice((24, 60, 120, 1024)),
        index_interval_bytes=choice.choice((0, 0, 200, 1000)),
        index_each_batch=choice.random() < 0.3,
        retention_ms=choice.choice((-1, 60_000, 600_000)),
        retention_bytes=choice.choice((-1, 3000, 10_000)),
        file_delete_delay_ms=choice.choice((0, 1000, 60_000)),
        flush_messages=choice.choice(((1 << 63) - 1, 1, 7)) if choice.random() < 0.3 else (1 << 63) - 1,
        preallocate=choice.random() < 0.15,
        producer_id_expiration_ms=choice.choice((DAY_MS, DAY_MS, 120_000)),
    )


class Simulation:
    """One story; the same seed gives the same story."""

    def __init__(self, seed: int, *, trace: Callable[[str], None] = lambda _: None) -> None:
        self._choice = random.Random(seed)
        self._trace = trace
        self._host = Host(self._choice, random_config(self._choice))
        self._model = LogModel()
        self._workload = Workload(self._choice, self._host, self._model, trace)
        self.power_cuts = 0
        self._lost_power = False  # since the last step: then every byte found is on stable storage

    def run(self) -> None:
        """Run the story.

        Raises:
            AssertionError: the log lost, changed or invented something.
        """
        self._trace(f"config {self._host.config}")
        for _ in range(self._choice.randint(2, 5)):
            self._start()
            self._workload.begin_life()
            self._lost_power = False
            self._live()
        self._start()

    def _live(self) -> None:
        """Run some steps and an end in the middle of one: a clean stop, a power cut, or a failing disk."""
        disk, choice = self._host.disk, self._choice
        steps = choice.randint(3, 25)
        if choice.random() < 0.75:
            disk.power_fails_at = disk.moment + choice.randint(1, choice.choice((20, 100, 300)))
        elif choice.random() < 0.6:
            operation = choice.choice(("write", "write", "sync", "truncate", "rename", "create", "sync_directory"))
            number = choice.choice((errno.ENOSPC, errno.EIO))
            disk.faults.append(Fault(operation, error_number=number, skip=choice.randrange(30), times=None))
        try:
            for _ in range(steps):
                self._workload.step()
            if not disk.faults and choice.random() < 0.5:
                self._stop()
                return
        except PowerLostError as error:
            self._trace(f"power lost {error}")
        except LogDirOfflineError as error:
            assert disk.faults, "the log dir is offline, and nothing was wrong with the disk"
            self._trace(f"offline: {error}")
            self._fall_down()
            return
        disk.faults.clear()
        self._lose_power()

    def _fall_down(self) -> None:
        """Continue after a failure of the disk: a person makes room, or repairs it, and starts again."""
        self._host.kill()
        self._host.disk.faults.clear()
        if self._choice.random() < 0.5:
            self._lose_power()

    def _stop(self) -> None:
        self._trace("stop")
        self._host.stop()
        assert not self._host.disk.open_files, f"{self._host.disk.open_files} files are still open"
        self._host.disk.power_fails_at = None
        self._model.flushed(self._model.log_end_offset)
        self._model.check_exact(self._host.segments())
        if self._choice.random() < 0.3:
            self._lose_power()  # after a clean stop every byte is on stable storage

    def _lose_power(self) -> None:
        self.power_cuts += 1
        self._lost_power = True
        self._host.disk.crash(self._choice)

    def _start(self) -> None:
        """Start, perhaps with the power failing in the middle of the recovery, until it succeeds."""
        disk, choice = self._host.disk, self._choice
        for start in range(_STARTS_AT_MOST):
            if start + 1 < _STARTS_AT_MOST and choice.random() < 0.4:
                disk.power_fails_at = disk.moment + choice.randint(1, 40)
            try:
                recovers = self._host.will_recover()
                log_start = self._host.checkpointed_log_start()
                self._host.start()
                disk.power_fails_at = None
            except PowerLostError as error:
                self._trace(f"power lost while starting {error}")
                self._lose_power()
                continue
            self._check_start(log_start, recovers=recovers)
            return
        raise AssertionError("the last start is not interrupted")

    def _check_start(self, checkpointed_log_start: int, *, recovers: bool) -> None:
        host, model = self._host, self._model
        log = host.log
        segments = host.segments()
        self._trace(
            f"started: [{log.log_start_offset}, {log.log_end_offset}) checkpointed log start {checkpointed_log_start} "
            f"segments {[(each.base_offset, [batch.base_offset for batch in each.batches]) for each in segments]}"
        )
        assert checkpointed_log_start in model.log_starts
        model.check_survivors(segments, checkpointed_log_start=checkpointed_log_start)
        ends = [batch.last_offset + 1 for each in segments for batch in each.batches]
        assert log.log_end_offset == max([segments[-1].base_offset, *ends[-1:]])
        assert log.log_start_offset == max(checkpointed_log_start, segments[0].base_offset)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        model.adopt(
            segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            is_durable=self._lost_power,
        )
        self._check_epochs()
        self._check_producers()
        self._check_aborted()
        self._check_lookups()
        if recovers and self._choice.random() < 0.5:
            self._check_second_start()

    def _check_epochs(self) -> None:
        log = self._host.log
        for batch in self._model.batches:
            if batch.base_offset >= self._model.highest_log_start:
                found = log.leader_epochs.epoch_for(batch.base_offset)
                assert found == batch.leader_epoch, (
                    f"offset {batch.base_offset} is of epoch {batch.leader_epoch}, the cache says {found}: "
                    f"{log.leader_epochs.entries}"
                )
        assert all(entry.start_offset <= log.log_end_offset for entry in log.leader_epochs.entries)

    def _check_producers(self) -> None:
        """Check that the log knows every producer with a batch in it unless it expired, and no unknown one."""
        log = self._host.log
        views, _ = self._model.replay()
        known = log.producers.producers
        for producer_id, view in views.items():
            state = known.get(producer_id)
            if state is None:
                silent_ms = self._host.now_ms - view.last_timestamp_ms
                is_expired = silent_ms >= self._host.config.producer_id_expiration_ms
                assert view.seen_up_to < log.log_start_offset or is_expired, f"producer {producer_id} was forgotten"
                continue
            assert state.producer_epoch == view.epoch, (
                f"producer {producer_id} is of epoch {state.producer_epoch}, not {view}"
            )
            found = (state.last_sequence, state.batches[-1].last_offset if state.batches else -1)
            if found != (-1, -1) or not (view.last_offset < log.log_start_offset or self._has_expired(view)):
                assert found == (view.last_sequence, view.last_offset), f"producer {producer_id} is {found}, not {view}"
            if view.txn_first_offset < 0 or view.txn_first_offset >= log.log_start_offset:
                assert state.current_txn_first_offset == view.txn_first_offset, (
                    f"producer {producer_id}: {state}, not {view}"
                )
        assert set(known) <= set(views), f"producers {sorted(set(known) - set(views))} were never there"

    def _has_expired(self, view: ProducerView) -> bool:
        """Return True if the producer's data may have expired before a later marker restored it."""
        return self._host.now_ms - view.last_data_timestamp_ms >= self._host.config.producer_id_expiration_ms

    def _check_aborted(self) -> None:
        log = self._host.log
        first = self._model.batches[0].base_offset if self._model.batches else log.log_end_offset
        _, aborted = self._model.replay()
        found = {
            entry.last_offset: (entry.producer_id, entry.first_offset, entry.last_stable_offset)
            for entry in log.aborted_transactions(first, log.log_end_offset)
        }
        expected = {entry.last_offset: entry for entry in aborted if entry.last_offset >= first}
        assert found.keys() <= expected.keys(), f"aborts at {sorted(found)}, instead of {sorted(expected)}"
        for last_offset, entry in expected.items():
            if entry.earliest_open >= self._model.highest_log_start:
                assert last_offset in found, f"the abort at {last_offset} is in no index"
                producer_id, first_offset, stable_offset = found[last_offset]
                assert (producer_id, first_offset) == (entry.producer_id, entry.first_offset)
                if entry.last_stable_offset <= last_offset:
                    assert stable_offset == entry.last_stable_offset
                else:  # a batch behind the marker in the same set counts as open already
                    assert stable_offset > last_offset

    def _check_lookups(self) -> None:
        """Check that the rebuilt indexes find the batches."""
        log = self._host.log
        batches = self._model.batches
        for batch in self._choice.sample(batches, min(3, len(batches))):
            if batch.last_offset >= log.log_start_offset:
                offset = self._choice.randint(max(batch.base_offset, log.log_start_offset), batch.last_offset)
                assert self._host.read(offset).startswith(batch.data), f"a read from {offset} begins elsewhere"

    def _check_second_start(self) -> None:
        """Check that a second start after an immediate crash finds and leaves the state of the first start."""
        host = self._host
        forgets = host.config.producer_id_expiration_ms < DAY_MS
        if forgets or self._model.highest_log_start:  # expired producers, or those known only from below the log start
            host.kill()
            host.start()
        before = self._files_in_use()
        host.kill()
        host.start()
        after = self._files_in_use()
        assert before.keys() == after.keys(), (
            f"a second start changed the names: {sorted(p.name for p in before.keys() ^ after.keys())}"
        )
        changed = sorted(path.name for path in before if before[path] != after[path])
        assert not changed, f"a second start changed {changed}"
        log, model = host.log, self._model
        assert (log.log_start_offset, log.log_end_offset) == (model.log_start_offset, model.log_end_offset)

    def _files_in_use(self) -> dict[Path, bytes]:
        files = self._host.disk.snapshot(DIRECTORY)
        return {path: data for path, data in files.items() if not path.name.endswith(".deleted")}


def run_seed(seed: int, *, trace: Callable[[str], None] = lambda _: None) -> Simulation:
    """Run the story of one seed.

    Raises:
        SimulationFailedError: the story failed; the text tells how to repeat it.
    """
    simulation = Simulation(seed, trace=trace)
    try:
        simulation.run()
    except Exception as error:
        raise SimulationFailedError(
            f"seed {seed}: {type(error).__name__}: {error}\nsee it again: make crash FIRST={seed} SEEDS=1"
        ) from error
    return simulation
