"""Log dirs on a simulated disk for tests of a standby's shells, and batches read back from them."""

from collections.abc import Callable
from pathlib import Path

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk
from tests.log.cleaning.cleaners import own_log_rules
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, UnifiedLog
from tierd.model import TopicPartition

LOG_DIRS = (Path("/one"), Path("/two"))


class NoDirLock:
    def release(self) -> None:
        pass


class StandbyDisk:
    """Log dirs of a standby on one simulated disk, with a clock that only the test moves."""

    def __init__(self, *, log_dirs: tuple[Path, ...] = LOG_DIRS[:1]) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self.log_dirs = log_dirs
        self.config = LogConfig(segment_bytes=1000, index_interval_bytes=0, segment_index_bytes=240)
        for path in log_dirs:
            self.disk.make_directory(path)
        self.disk.sync_directory(Path("/"))

    def service(self, config_for: Callable[[str], LogConfig] | None = None) -> LogService:
        """Return a service that is still to be entered."""
        self.manager = LogManager(
            self.log_dirs,
            LogManagerSettings(config_for=config_for or (lambda _: self.config), clock=self.clock),
            disk=self.disk,
            acquire_lock=lambda _: NoDirLock(),
        )
        return LogService(self.manager, clock=self.clock, rewriting=own_log_rules())

    async def pass_time(self, seconds: float, *, sleepers: int = 0) -> None:
        """Let ``seconds`` pass in steps of one; between them all tasks have come to rest."""
        waiting = 2 * len(self.manager.live_dirs) + sleepers
        for _ in range(round(seconds)):
            self.clock.advance(1)
            await eventually(lambda: self.clock.sleeping > waiting, what="the duties")


async def read_content(service: LogService, partition: TopicPartition) -> list[bytes]:
    """Return the batches of a log from its start to its end."""

    def read(log: UnifiedLog) -> list[bytes]:
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = bytes(log.read(offset, max_bytes=1 << 20, isolation=None).records)
            if not data:
                break
            while data:
                size = int.from_bytes(data[8:12], "big") + 12
                found.append(data[:size])
                offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
                data = data[size:]
        return found

    return await service.writer(partition).read(read)
