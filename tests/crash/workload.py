"""Workload: random steps on a log and on its model, each with the expected answer."""

import random
from collections.abc import Callable

from tests.crash.host import Host
from tests.crash.model import LogModel
from tests.crash.oracle import Batch, offset_by_timestamp, split
from tests.crash.records import Client, SimulatedProducer, stored
from tierd.errors import LogDirOfflineError, LogError, TierErrorCode
from tierd.log.log_errors import AppendError
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import Producer, encode_batch

_PRODUCERS = 3
Trace = Callable[[str], None]


class Workload:
    """Driver of one life of a log, as its leader or as a follower, from one start of the machine to the next."""

    def __init__(self, choice: random.Random, host: Host, model: LogModel, trace: Trace) -> None:
        self._choice = choice
        self._host = host
        self._model = model
        self._trace = trace
        self._client = Client(choice)
        self._producers = [SimulatedProducer(1000 + number) for number in range(_PRODUCERS)]
        self._is_leader = True
        self.leader_epoch = 0

    def begin_life(self) -> None:
        """Begin after a start: perhaps with another leader, and with clients that resume at the state of the log."""
        self._is_leader = self._choice.random() < 0.6
        self.leader_epoch = max(
            [self.leader_epoch, *(batch.leader_epoch for batch in self._model.batches)]
        ) + self._choice.randint(0, 1)
        self._resume_producers()

    def step(self) -> None:
        """Run one random step."""
        steps = _LEADER_STEPS if self._is_leader else _FOLLOWER_STEPS
        names, weights = zip(*steps, strict=True)
        name = self._choice.choices(names, weights)[0]
        self._host.clock.advance(self._choice.choice((0.0, 0.0, 0.001, 1.0, 60.0)))
        getattr(self, f"_{name}")()
        self._after(name)

    def _after(self, name: str) -> None:
        """Check the conditions that hold after every step."""
        log, model = self._host.log, self._model
        self._trace(
            f"{name}: [{log.log_start_offset}, {log.log_end_offset}) high watermark {log.high_watermark} "
            f"recovery point {log.recovery_point} segments {[segment.base_offset for segment in log.segments]}"
        )
        assert log.log_end_offset == model.log_end_offset, f"log end {log.log_end_offset}, not {model.log_end_offset}"
        assert log.log_start_offset == model.log_start_offset
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        if log.recovery_point > log.log_start_offset:  # otherwise the point has no meaning
            model.flushed(log.recovery_point)

    # -- leader

    def _append(self) -> None:
        """Append several sets in one call, as from several clients."""
        requests: list[AppendRequest] = []
        expected: list[Batch] = []
        end_offset = self._model.log_end_offset
        for _ in range(self._choice.choice((1, 1, 1, 2, 5))):
            batch, origin = self._next_batch()
            found = stored(batch, base_offset=end_offset, leader_epoch=self.leader_epoch)
            end_offset = found.last_offset + 1
            expected.append(found)
            requests.append(AppendRequest(batch, origin=origin, leader_epoch=self.leader_epoch))
        self._append_all(requests, expected)

    def _next_batch(self) -> tuple[bytes, AppendOrigin]:
        producer = self._choice.choice([None, *self._producers])
        if producer is None:
            return self._client.data(self._host.now_ms, None), AppendOrigin.CLIENT
        if producer.in_transaction and self._choice.random() < 0.4:
            return self._client.marker(self._host.now_ms, producer), AppendOrigin.COORDINATOR
        if not producer.in_transaction and self._choice.random() < 0.5:
            producer.in_transaction = True
        return self._client.data(self._host.now_ms, producer), AppendOrigin.CLIENT

    def _append_all(self, requests: list[AppendRequest], expected: list[Batch]) -> None:
        self._model.will_append(expected)
        answers = self._host.log.append_many(requests, now_ms=self._host.now_ms)
        for batch, answer in zip(expected, answers, strict=True):
            done = _accepted(answer)
            assert (done.first_offset, done.last_offset) == (batch.base_offset, batch.last_offset)
            self._model.appended(batch)

    def _duplicate(self) -> None:
        """Send the last batch of a client again, as after a lost answer."""
        producer = self._choice.choice(self._producers)
        if not producer.sent or not self._knows(producer):
            return
        end_offset = self._host.log.log_end_offset
        answer = self._host.log.append_as_leader(
            producer.sent[-1], leader_epoch=self.leader_epoch, now_ms=self._host.now_ms
        )
        assert answer.is_duplicate
        known = [*self._model.deleted, *self._model.batches]
        assert any(batch.data[61:] == producer.sent[-1][61:] for batch in known)
        assert self._host.log.log_end_offset == end_offset

    def _refused(self) -> None:
        """Append a sequence gap or a fenced producer's batch: it is refused, its neighbour in the group is not."""
        producer = self._choice.choice(self._producers)
        if not self._knows(producer):
            return
        is_fenced = producer.epoch > 0 and self._choice.random() < 0.5
        bad = encode_batch(
            self._client.records(self._host.now_ms),
            base_offset=0,
            producer=Producer(producer.id, producer.epoch - is_fenced, producer.next_sequence + 7),
            is_transactional=producer.in_transaction,
        )
        good = self._client.data(self._host.now_ms, None)
        found = stored(good, base_offset=self._model.log_end_offset, leader_epoch=self.leader_epoch)
        self._model.will_append([found])
        requests = [
            AppendRequest(bad, leader_epoch=self.leader_epoch),
            AppendRequest(good, leader_epoch=self.leader_epoch),
        ]
        refusal, answer = self._host.log.append_many(requests, now_ms=self._host.now_ms)
        _accepted(answer)
        expected = TierErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else TierErrorCode.OUT_OF_ORDER_SEQUENCE
        assert isinstance(refusal, AppendError), f"{refusal!r} instead of {expected}"
        assert refusal.code is expected, f"{refusal!r} instead of {expected}"
        self._model.appended(found)

    def _knows(self, producer: SimulatedProducer) -> bool:
        """Return True if the log has a batch of this producer in this epoch and has not dropped it."""
        known = self._host.log.producers.producers.get(producer.id)
        return known is not None and bool(known.batches) and known.producer_epoch == producer.epoch

    def _new_epoch(self) -> None:
        self.leader_epoch += 1
        self._host.log.assign_leader_epoch(self.leader_epoch, self._host.log.log_end_offset)

    # -- follower

    def _replicate(self) -> None:
        """Replicate sets of one to three numbered batches; some offsets were compacted away at the leader."""
        requests, expected = [], []
        end_offset = self._model.log_end_offset
        for _ in range(self._choice.choice((1, 1, 2))):
            batches = []
            for _ in range(self._choice.choice((1, 1, 3))):
                if self._choice.random() < 0.1:
                    end_offset += self._choice.randint(1, 9)
                if self._choice.random() < 0.1:
                    self.leader_epoch += 1
                data, _ = self._next_batch()
                batches.append(stored(data, base_offset=end_offset, leader_epoch=self.leader_epoch))
                end_offset = batches[-1].last_offset + 1
            is_too_large = sum(len(batch.data) for batch in batches) > self._host.config.segment_bytes
            for each in [[batch] for batch in batches] if is_too_large else [batches]:
                requests.append(AppendRequest(b"".join(batch.data for batch in each), origin=AppendOrigin.REPLICATION))
                expected.append(each)
        self._model.will_append(batch for each in expected for batch in each)
        answers = self._host.log.append_many(requests, now_ms=self._host.now_ms)
        for each, answer in zip(expected, answers, strict=True):
            done = _accepted(answer)
            assert (done.first_offset, done.last_offset) == (each[0].base_offset, each[-1].last_offset)
            for batch in each:
                self._model.appended(batch)

    def _replicate_again(self) -> None:
        """Replicate batches that the log already has: they are refused."""
        if not self._model.batches:
            return
        again = self._choice.choice(self._model.batches)
        request = AppendRequest(again.data, origin=AppendOrigin.REPLICATION)
        (refusal,) = self._host.log.append_many([request], now_ms=self._host.now_ms)
        assert isinstance(refusal, AppendError), f"{again.base_offset} was taken again: {refusal}"
        assert refusal.code is TierErrorCode.UNEXPECTED_APPEND_OFFSET
        assert f"records {again.base_offset} to {again.last_offset} begin below" in str(refusal)

    def _truncate(self) -> None:
        log, model = self._host.log, self._model
        low = max(log.log_start_offset, log.log_end_offset - self._choice.choice((1, 5, 30)))
        offset = self._choice.randint(low, log.log_end_offset)
        model.removing_from = offset
        self._trace(f"truncate to {offset}")
        self._host.truncate(offset)
        if offset < model.log_end_offset:
            model.truncated(offset, log_start_offset=log.log_start_offset)
        model.removing_from = None
        self._resume_producers()

    def _truncate_fully(self) -> None:
        log, model = self._host.log, self._model
        offset = self._choice.randint(log.log_start_offset, log.log_end_offset + 20)
        model.removing_from = 0
        self._trace(f"truncate fully and start at {offset}")
        self._host.truncate_fully(offset)
        model.truncated(0, log_start_offset=log.log_start_offset)
        model.deleted.clear()
        model.log_end_offset = offset
        assert log.log_start_offset == offset
        self._resume_producers()

    def _resume_producers(self) -> None:
        views, _ = self._model.replay()
        for producer in self._producers:
            known = self._host.log.producers.producers.get(producer.id)
            producer.resume(views.get(producer.id) if known is not None else None)
            if known is not None and not known.batches:  # only a marker of the producer is left
                producer.epoch, producer.next_sequence = producer.epoch + 1, 0

    # -- both

    def _flush(self) -> None:
        self._host.log.flush(including_active=self._choice.random() < 0.5)
        self._model.flushed(self._model.log_end_offset)
        assert self._host.log.recovery_point == self._host.log.log_end_offset

    def _roll(self) -> None:
        self._host.log.roll(now_ms=self._host.now_ms)

    def _housekeep(self) -> None:
        self._host.log.housekeep(self._host.now_ms)

    def _checkpoint(self) -> None:
        self._host.checkpoint()

    def _move_high_watermark(self) -> None:
        log = self._host.log
        wanted = self._choice.randint(log.high_watermark, log.log_end_offset)
        assert log.update_high_watermark(wanted) == wanted

    def _delete_records(self) -> None:
        log = self._host.log
        offset = self._choice.randint(log.log_start_offset, log.high_watermark)
        self._model.will_move_log_start(offset)
        log.delete_records(offset)
        self._model.log_start_moved(log.log_start_offset)

    def _retain(self) -> None:
        log, model = self._host.log, self._model
        model.removing_below = log.high_watermark
        for segment in log.segments:
            if segment.base_offset <= log.high_watermark:
                model.will_move_log_start(segment.base_offset)
        model.will_move_log_start(log.high_watermark)
        log.delete_old_segments(now_ms=self._host.now_ms)
        model.retained(log.segments[0].base_offset, log_start_offset=log.log_start_offset)

    def _read(self) -> None:
        """Read at any offset; the answer begins with the batch of the offset, or with the next one."""
        log = self._host.log
        offset = self._choice.randint(log.log_start_offset, log.log_end_offset)
        data = self._host.read(offset)
        expected = [batch.data for batch in self._model.batches if batch.last_offset >= offset]
        found, torn_bytes = split(data)
        assert not torn_bytes
        assert found == expected[: len(found)], f"a read from {offset} returned something else"
        assert bool(found) == bool(expected)

    def _look_up_time(self) -> None:
        log = self._host.log
        timestamp_ms = self._host.now_ms - self._choice.choice((0, 1, 1000, 5000, 60_000, 300_000))
        segments = self._host.segments()
        if any(max([-1, *(batch.max_timestamp_ms for batch in each.batches)]) < 0 for each in segments[:-1]):
            return  # the segment has no timestamps: its mtime counts
        expected = offset_by_timestamp(segments, timestamp_ms, log_start_offset=log.log_start_offset)
        found = self._host.offset_by_timestamp(timestamp_ms)
        assert found == expected, f"timestamp {timestamp_ms} is at offset {found}, not {expected}"

    def _look_at_files(self) -> None:
        self._model.check_exact(self._host.segments())


def _accepted(answer: AppendInfo | LogError) -> AppendInfo:
    if isinstance(answer, LogDirOfflineError):
        raise answer
    assert isinstance(answer, AppendInfo), f"refused: {answer!r}"
    return answer


_BOTH: tuple[tuple[str, float], ...] = (
    ("flush", 5),
    ("roll", 2),
    ("housekeep", 5),
    ("checkpoint", 3),
    ("move_high_watermark", 6),
    ("delete_records", 1.5),
    ("retain", 2),
    ("read", 3),
    ("look_up_time", 2),
    ("look_at_files", 2),
)
_LEADER_STEPS = (("append", 30.0), ("duplicate", 2.0), ("refused", 2.0), ("new_epoch", 1.0), *_BOTH)
_FOLLOWER_STEPS = (("replicate", 30.0), ("replicate_again", 1.0), ("truncate", 3.0), ("truncate_fully", 0.7), *_BOTH)
