"""Any compacted log, cleaned at any times with room for any number of keys, agrees with a model of latest values."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crash.cleaning import CompactedModel, committed
from tests.crash.host import PARTITION, Host
from tests.log.cleaning.cleaners import clean, own_log_rules
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import encode_batch, encode_end_marker
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NO_PRODUCER, NewRecord, Producer
from tierd.log.records.record import ControlRecordType

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=4)
ENDS = st.sampled_from([ControlRecordType.COMMIT, ControlRecordType.ABORT])
STEPS = st.lists(
    st.tuples(st.just("append"), RECORDS)
    | st.tuples(st.just("transaction"), RECORDS, ENDS)
    | st.tuples(st.just("clean"), st.integers(1, 8))
    | st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0]))
    | st.tuples(st.just("restart")),
    max_size=40,
)


class OwnLog:
    """A log, and the latest values that reads must return."""

    def __init__(self, segment_bytes: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=0,
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=1000,
        )
        self.host = Host(random.Random(0), config)
        self.host.start()
        self.model = CompactedModel()
        self.sequence = 0

    def append(self, records: list[tuple[bytes, bytes | None]], producer: Producer = NO_PRODUCER) -> int:
        data = encode_batch(
            [NewRecord(key, value, self.host.now_ms) for key, value in records],
            base_offset=0,
            producer=producer,
            is_transactional=producer.id >= 0,
        )
        return self.host.log.append_as_leader(data, leader_epoch=0, now_ms=self.host.now_ms).first_offset

    def note(self, first_offset: int, records: list[tuple[bytes, bytes | None]]) -> None:
        for number, (key, value) in enumerate(records):
            self.model.add(first_offset + number, key, value)
        self.host.log.update_high_watermark(self.host.log.log_end_offset)

    def transaction(self, records: list[tuple[bytes, bytes | None]], end: ControlRecordType) -> None:
        first = self.append(records, Producer(7, 0, self.sequence))
        self.sequence += len(records)
        marker = encode_end_marker(
            kind=end, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.host.now_ms
        )
        self.host.log.append_as_leader(marker, leader_epoch=0, now_ms=self.host.now_ms, origin=AppendOrigin.COORDINATOR)
        self.note(first, records if end is ControlRecordType.COMMIT else [])

    def clean(self, max_keys: int) -> None:
        rules = own_log_rules(max_keys=max_keys)
        known = self.host.manager.cleaner_offset(PARTITION)
        end = clean(self.host.log, cleaned_to=known, now_ms=self.host.now_ms, rules=rules)
        assert end >= (known or 0)
        self.host.manager.set_cleaner_offset(PARTITION, end)

    def restart(self) -> None:
        self.host.stop()
        self.host.start()

    def check(self) -> None:
        self.model.check(list(committed(self.host.log)))


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, segment_bytes=st.sampled_from([300, 700]))
def test_log_answers_with_the_latest_committed_value_of_every_key(
    steps: list[tuple[object, ...]], segment_bytes: int
) -> None:
    log = OwnLog(segment_bytes)
    for step in [*steps, ("clean", 8), ("wait", 5.0), ("clean", 8), ("restart",)]:
        match step:
            case ("append", list() as records):
                log.note(log.append(records), records)
            case ("transaction", list() as records, ControlRecordType() as end):
                log.transaction(records, end)
            case ("clean", int() as max_keys):
                log.clean(max_keys)
            case ("wait", float() as seconds):
                log.host.clock.advance(seconds)
            case ("restart",):
                log.restart()
        log.check()
