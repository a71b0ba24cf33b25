"""CleaningStory: a compacted log on a machine that loses power at one given moment of a round of the cleaner."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.crash.host import DIRECTORY, LOG_DIR, PARTITION, Host
from tests.fakes.simulated_disk import PowerLostError
from tests.log.cleaning.cleaners import begin_round, clean, own_log_rules
from tierd.log.files.partition_scan import file_name
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import encode_batch, encode_end_marker
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NO_PRODUCER, NewRecord, Producer
from tierd.log.records.record import ControlRecordType, Record
from tierd.log.records.record_batch import iter_batches
from tierd.model import IsolationLevel

_KEYS = 7
_PRODUCER = Producer(1000, 0, 0)


@dataclass(slots=True)
class CompactedModel:
    """The expected records of a compacted log.

    Attributes:
        appended: every record that is not aborted, by offset.
        latest: the offset of the latest of every key.
    """

    appended: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)

    def add(self, offset: int, key: bytes, value: bytes | None) -> None:
        self.appended[offset] = key, value
        self.latest[key] = offset

    def check(self, records: list[Record]) -> None:
        """Check that the records were appended, ascend without repetition, and include every live value."""
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), f"offsets {offsets}"
        found: dict[bytes, bytes | None] = {}
        for record in records:
            assert (record.key, record.value) == self.appended[record.offset], f"offset {record.offset} is changed"
            assert record.key is not None
            found[record.key] = record.value
        values = {key: value for key, value in found.items() if value is not None}
        expected = {key: self.appended[offset][1] for key, offset in self.latest.items()}
        assert values == {key: value for key, value in expected.items() if value is not None}


class CleaningStory:
    """A log of several rounds, with outputs, tombstones with a horizon, and dirty segments."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)
        self.host = Host(
            self._choice,
            LogConfig(
                segment_bytes=self._choice.choice((500, 900)),
                index_interval_bytes=0,
                cleanup_policy=frozenset({"compact"}),
                delete_retention_ms=self._choice.choice((0, 1000)),
                file_delete_delay_ms=self._choice.choice((0, 60_000)),
            ),
        )
        self.model = CompactedModel()
        self._rules = own_log_rules(max_keys=self._choice.choice((3, 1000)))
        self._sequence = 0
        self.host.start()
        for _ in range(2):
            self.write(self._choice.randint(20, 50))
            self.clean()
            self.host.clock.advance(2.0)
        self.write(self._choice.randint(20, 50))
        if self._choice.random() < 0.5:
            self._abandon_a_round()

    def write(self, count: int) -> None:
        """Append records, some deleted, some aborted, and make them durable."""
        for number in range(count):
            key = b"key-%d" % self._choice.randrange(_KEYS)
            value = None if self._choice.random() < 0.2 else b"value-%d" % self._choice.randrange(10**6)
            if self._choice.random() < 0.2:
                self._append_transaction(key, value, commits=self._choice.random() < 0.5)
            else:
                self.model.add(self._append(key, value, None), key, value)
            if number % 9 == 0:
                self.host.clock.advance(0.1)
        log = self.host.log
        log.update_high_watermark(log.log_end_offset)
        log.flush(including_active=True)
        self.host.checkpoint()

    def clean(self) -> None:
        """Clean to the end, as ``LogCleaner`` does."""
        known = self.host.manager.cleaner_offset(PARTITION)
        end = clean(self.host.log, cleaned_to=known, now_ms=self.host.now_ms, rules=self._rules)
        self.host.manager.set_cleaner_offset(PARTITION, end)
        self.host.log.housekeep(self.host.now_ms)

    def restart(self, seed: int) -> None:
        """Lose power, load the log, and compare it with the model."""
        self.host.disk.power_fails_at = None
        self.host.disk.crash(random.Random(seed))
        end = self.host.log.log_end_offset
        self.host.start()
        log = self.host.log
        log.update_high_watermark(log.log_end_offset)
        assert log.log_end_offset == end
        self.model.check(list(committed(log)))
        names = self.host.disk.list_names(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        state = log.producers.producers.get(_PRODUCER.id)
        assert state is None or state.last_sequence == self._sequence - 1, "the producer's last sequence is lost"

    def _abandon_a_round(self) -> None:
        """Abandon a round before its replacement: its outputs stay, and later groups begin elsewhere."""
        known = self.host.manager.cleaner_offset(PARTITION)
        begun = begin_round(self.host.log, cleaned_to=known, now_ms=self.host.now_ms, rules=self._rules)
        begun.map_keys()
        groups = begun.groups()
        if groups:
            begun.rewrite(groups[0])
        stale = file_name(self.host.log.segments[0].base_offset + 1, ".log.cleaned")
        file = self.host.disk.open(DIRECTORY / stale, create=True)
        file.sync()
        file.close()
        self.host.disk.sync_directory(DIRECTORY)

    def _append(self, key: bytes, value: bytes | None, producer: Producer | None) -> int:
        data = encode_batch(
            [NewRecord(key, value, self.host.now_ms)],
            base_offset=0,
            producer=producer or NO_PRODUCER,
            is_transactional=producer is not None,
        )
        return self.host.log.append_as_leader(data, leader_epoch=0, now_ms=self.host.now_ms).first_offset

    def _append_transaction(self, key: bytes, value: bytes | None, *, commits: bool) -> None:
        offset = self._append(key, value, Producer(_PRODUCER.id, 0, self._sequence))
        self._sequence += 1
        if commits:
            self.model.add(offset, key, value)
        marker = encode_end_marker(
            kind=ControlRecordType.COMMIT if commits else ControlRecordType.ABORT,
            producer_id=_PRODUCER.id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.host.now_ms,
        )
        self.host.log.append_as_leader(marker, leader_epoch=0, now_ms=self.host.now_ms, origin=AppendOrigin.COORDINATOR)


def committed(log: UnifiedLog) -> Iterator[Record]:
    """Yield the records of a consumer of committed records."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
        if not found.records:
            return
        aborted = found.aborted or ()
        for batch in iter_batches(bytes(found.records), name="log"):
            offset = batch.last_offset + 1
            is_aborted = any(
                entry.producer_id == batch.producer_id and entry.first_offset <= batch.base_offset <= entry.last_offset
                for entry in aborted
            )
            if not batch.is_control and not (batch.is_transactional and is_aborted):
                yield from batch.records()


def run_cleaning_story(seed: int, moment: int) -> bool:
    """Run a story whose power fails ``moment`` calls of the disk after a round began; return if the power failed."""
    story = CleaningStory(seed)
    disk = story.host.disk
    disk.power_fails_at = disk.moment + moment
    has_failed = False
    try:
        story.clean()
    except PowerLostError:
        has_failed = True
    story.restart(seed * 1000 + moment)
    story.clean()
    story.restart(seed)
    assert disk.status(LOG_DIR / "cleaner-offset-checkpoint") is not None
    return has_failed
