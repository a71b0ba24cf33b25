"""DeletionRequests in every order of restart, checkpoint, pass, copy and request, against a model of the broker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

import pytest

from tierd.log import BatchHeader
from tierd.tiering.copying.deleted_records import DeletionRequests
from tierd.tiering.local.broker_state import BrokerOffsets

EPOCH = 5
LED_FROM = 12
"""First offset that was written under the leadership; all before it came from an earlier leader."""
TAKEN_OVER = 4
"""A base of the earlier leader's segments, which its retention made the log start; within a segment of this broker."""
RECORDS_PER_BATCH = 4


class Step(Enum):
    """Event of the model; events happen in any order."""

    REQUEST = "DeleteRecords"
    CHECKPOINT = "the broker writes its log starts"
    PASS = "the daemon makes a pass"
    RESTART = "the daemon starts again"
    COPY = "the active segment is rolled and copied, and the next one goes on under the same leadership"


@dataclass
class Model:
    """Broker that has just begun to lead, and the daemon beside it."""

    request: int
    log_start: int = TAKEN_OVER
    checkpointed: int | None = None
    written: int = 0
    tier_start: int = 0
    log_end: int = LED_FROM + 2 * RECORDS_PER_BATCH
    is_sole_replica: bool = False
    requests: DeletionRequests = field(init=False)
    known_before_request: bool = False

    def __post_init__(self) -> None:
        self.start_daemon()

    def start_daemon(self) -> None:
        self.requests = DeletionRequests(EPOCH)
        if self.is_sole_replica:
            self.requests.took_over_nothing()

    def play(self, step: Step) -> None:
        match step:
            case Step.REQUEST:
                self.known_before_request = self.requests.has_risen(self.log_start + 1)
                self.log_start = max(self.log_start, self.request)
            case Step.CHECKPOINT:
                self.checkpointed, self.written = self.log_start, self.written + 1
            case Step.RESTART:
                self.start_daemon()
            case Step.COPY:
                self.log_end += RECORDS_PER_BATCH
            case Step.PASS:
                self._pass()

    def _pass(self) -> None:
        self.requests.observe(BrokerOffsets(self.log_end, self.checkpointed, self.written))
        inside = self.checkpointed
        if inside is None or inside <= self.tier_start:
            return
        proven = self.requests.is_proven_by(_batch_at(inside - 1), inside=inside, latest_epoch=EPOCH)
        if self.requests.has_risen(inside) or proven:
            self.tier_start = inside


def _batch_at(offset: int, *, epoch: int | None = None, magic: int = 2) -> BatchHeader:
    base = offset - offset % RECORDS_PER_BATCH
    return BatchHeader(
        base_offset=base,
        last_offset=base + RECORDS_PER_BATCH - 1,
        partition_leader_epoch=(EPOCH if base >= LED_FROM else EPOCH - 1) if epoch is None else epoch,
        magic=magic,
        crc=0,
        attributes=0,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=RECORDS_PER_BATCH,
        position=0,
        size_bytes=100,
        name="a segment",
    )


def _orders(longest: int) -> Iterator[tuple[Step, ...]]:
    """Yield every order of up to ``longest`` steps with exactly one deletion of records."""
    for length in range(1, longest + 1):
        yield from (order for order in product(Step, repeat=length) if order.count(Step.REQUEST) == 1)


def _within_a_minute(model: Model, steps: Sequence[Step]) -> None:
    for step in (*steps, Step.CHECKPOINT, Step.PASS):
        model.play(step)


@pytest.mark.parametrize(
    "request_offset",
    [
        pytest.param(LED_FROM + 1, id="within-a-batch-of-this-leadership"),
        pytest.param(LED_FROM + RECORDS_PER_BATCH, id="at-a-batch-of-this-leadership"),
        pytest.param(TAKEN_OVER + 1, id="within-a-batch-of-an-earlier-leader"),
    ],
)
def test_request_that_batches_prove_is_obeyed_within_a_minute_in_every_order(request_offset: int) -> None:
    for order in _orders(5):
        model = Model(request_offset)
        _within_a_minute(model, order)
        assert model.tier_start == request_offset, order


@pytest.mark.parametrize("request_offset", [TAKEN_OVER + 1, 2 * RECORDS_PER_BATCH, LED_FROM, LED_FROM + 1])
def test_request_to_the_only_replica_is_obeyed_within_a_minute_in_every_order(request_offset: int) -> None:
    for order in _orders(5):
        model = Model(request_offset, log_start=0, is_sole_replica=True)
        _within_a_minute(model, order)
        assert model.tier_start == request_offset, order


@pytest.mark.parametrize("request_offset", [2 * RECORDS_PER_BATCH, LED_FROM])
def test_request_at_a_batch_of_an_earlier_leader_is_obeyed_once_the_log_start_before_it_is_known(
    request_offset: int,
) -> None:
    outcomes = set()
    for order in _orders(5):
        model = Model(request_offset)
        _within_a_minute(model, order)
        if model.known_before_request and Step.RESTART not in order[order.index(Step.REQUEST) :]:
            assert model.tier_start == request_offset, order
        outcomes.add(model.tier_start)
    assert outcomes == {0, request_offset}, "in doubt the tier keeps its records"


def test_log_start_that_was_taken_over_is_not_obeyed_in_any_order() -> None:
    steps = [step for step in Step if step is not Step.REQUEST]
    for length in range(7):
        for order in product(steps, repeat=length):
            model = Model(request=0)
            _within_a_minute(model, order)
            assert model.tier_start == 0, order


def test_batch_of_this_leadership_is_no_proof_once_a_later_epoch_is_known() -> None:
    """The broker follows again: its log start may be what the next leader's retention made it."""
    requests, inside = DeletionRequests(EPOCH), LED_FROM + RECORDS_PER_BATCH
    batch = _batch_at(inside - 1)
    assert not requests.is_proven_by(batch, inside=inside, latest_epoch=EPOCH + 1)
    assert requests.is_proven_by(batch, inside=inside, latest_epoch=EPOCH)
    assert requests.is_proven_by(batch, inside=inside, latest_epoch=EPOCH - 1), "the entry is not on disk yet"
    assert requests.is_proven_by(batch, inside=inside, latest_epoch=None)
    assert requests.is_proven_by(batch, inside=inside - 1, latest_epoch=EPOCH + 1), "no segment begins within a batch"


def test_log_start_without_a_batch_before_it_is_no_proof() -> None:
    requests = DeletionRequests(EPOCH)
    assert not requests.is_proven_by(None, inside=13, latest_epoch=EPOCH)
    assert not requests.is_proven_by(_batch_at(16), inside=13, latest_epoch=EPOCH), "compaction left nothing before it"
    assert not requests.is_proven_by(_batch_at(13, epoch=-1, magic=1), inside=14, latest_epoch=EPOCH)


def test_log_start_that_rises_in_epoch_zero_is_obeyed_without_waiting() -> None:
    requests = DeletionRequests(0)
    requests.observe(BrokerOffsets(20, 8, "written"))
    assert requests.has_risen(8)
    assert requests.recheck_s() is None


def test_checkpoint_that_is_older_than_the_partition_proves_no_request() -> None:
    """Its log directory may have been copied here: the log start that the next checkpoint has was taken over before."""
    requests = DeletionRequests(EPOCH)
    requests.observe(BrokerOffsets(20, None, "of before", is_log_start_known=False))
    requests.observe(BrokerOffsets(20, TAKEN_OVER, "written anew"))
    assert not requests.has_risen(TAKEN_OVER)
    assert requests.recheck_s() is not None
    requests.observe(BrokerOffsets(20, TAKEN_OVER + 1, "written again"))
    requests.observe(BrokerOffsets(20, TAKEN_OVER + 2, "and again"))
    assert requests.has_risen(TAKEN_OVER + 2)
