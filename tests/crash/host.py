"""Host: one machine with one log dir on a simulated disk, and one log in it, through a LogManager as tierd runs it."""

import random
from pathlib import Path

from tests.crash.oracle import Segment, segments_of
from tests.fakes.clock import FakeClock
from tests.fakes.simulated_disk import SimulatedDisk
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.checkpoints import LOG_START_OFFSET_CHECKPOINT, parse_offset_checkpoint
from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tierd.log.files.disk import read_file
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.log.segments.offset_lookup import LookupFacts, offset_by_timestamp
from tierd.model import TopicPartition

LOG_DIR = Path("/logs")
PARTITION = TopicPartition("topic", 0)
DIRECTORY = LOG_DIR / "topic-0"


class _NoLock:
    """A machine of its own needs no lock."""

    def release(self) -> None:
        pass


class Host:
    """Machine that starts and stops; the disk outlives both."""

    def __init__(self, choice: random.Random, config: LogConfig) -> None:
        self.clock = FakeClock()
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self.disk.make_directory(LOG_DIR)
        self.disk.sync_directory(Path("/"))
        self.config = config
        self._jitter = random.Random(choice.randrange(1 << 30))
        self._manager: LogManager | None = None

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None
        return self._manager

    @property
    def log(self) -> UnifiedLog:
        log = self.manager.get(PARTITION)
        assert log is not None
        return log

    def start(self) -> None:
        """Load the log; create it if it does not exist."""
        self._manager = LogManager(
            [LOG_DIR],
            LogManagerSettings(
                config_for=lambda _: self.config,
                clock=self.clock,
                random_int=lambda: self._jitter.getrandbits(31),
                new_id=lambda: f"{self._jitter.getrandbits(128):032x}",
            ),
            disk=self.disk,
            acquire_lock=lambda _: _NoLock(),
        )
        self._manager.start()
        self._manager.get_or_create(PARTITION)

    def will_recover(self) -> bool:
        """Return True if the next start finds a log that was not stopped cleanly."""
        if self.disk.status(LOG_DIR / CLEAN_SHUTDOWN_FILE) is not None or self.disk.status(DIRECTORY) is None:
            return False
        return any(name.endswith(".log") for name in self.disk.list_names(DIRECTORY))

    def stop(self) -> None:
        """Stop cleanly."""
        self.manager.shutdown()

    def kill(self) -> None:
        """End the process; the machine and its page cache go on."""
        self.log.close_handles()

    def truncate(self, offset: int) -> None:
        self.manager.truncate_to({PARTITION: offset})

    def truncate_fully(self, offset: int) -> None:
        self.manager.truncate_fully_and_start_at(PARTITION, offset)

    def checkpoint(self) -> None:
        """Write checkpoints as ``LogService`` does every minute. A failure is no error here."""
        self.manager.checkpoint_log_start_offsets()
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_high_watermarks()

    def read(self, offset: int) -> bytes:
        """Return all batches of one segment from ``offset`` on."""
        return self.log.read(offset, max_bytes=1 << 30, isolation=None).records

    def offset_by_timestamp(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after ``timestamp_ms``."""
        log = self.log
        facts = LookupFacts(
            log_start_offset=log.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            log_end_offset=log.log_end_offset,
            lineage=log.leader_epochs,
        )
        found = offset_by_timestamp(log._state.segments.reader, timestamp_ms, facts)
        return None if found is None else found.offset

    def segments(self) -> list[Segment]:
        """Return the content of the files, read without the log."""
        return segments_of(self.disk.snapshot(DIRECTORY), DIRECTORY)

    def checkpointed_log_start(self) -> int:
        """Return the log start in the checkpoint of the log dir; 0 if there is none."""
        if self.disk.status(LOG_DIR / LOG_START_OFFSET_CHECKPOINT) is None:
            return 0
        data = read_file(self.disk, LOG_DIR / LOG_START_OFFSET_CHECKPOINT)
        return parse_offset_checkpoint(data, name="checkpoint").get(PARTITION, 0)
