"""Log dirs on a simulated disk for tests of a standby's shells, and batches read back from them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk
from tests.log.cleaning.cleaners import own_log_rules
from tests.replication.follower.leaders import FakeLeaders
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, UnifiedLog
from tierd.model import TopicPartition
from tierd.replication.follower.standby import Standby
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_status import ReplicaStatus
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.model.messages import AppendRecordsRequest, AppendRecordsResponse, PartitionAppend
from tierd.replication.model.push_session import PeerIdentity

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


class StandbyRun:
    """A standby with its service on a ``StandbyDisk``; entered, it runs."""

    def __init__(
        self,
        disk: StandbyDisk,
        leaders: FakeLeaders,
        state_dir: Path,
        *,
        process_epoch: int = 100,
        max_memory_bytes: int = 1 << 20,
        is_push_enabled: bool = True,
    ) -> None:
        self.disk = disk
        self.leaders = leaders
        self.identity = StandbyIdentity(cluster_id="cluster", node_id=9, process_epoch=process_epoch)
        self.settings = StandbySettings(
            state_dir=state_dir, max_memory_bytes=max_memory_bytes, is_push_enabled=is_push_enabled
        )
        memory = StandbyMemory.load(state_dir)
        topics = StandbyTopics(memory.topics, flush="never", flush_interval_s=1)
        self.service = disk.service(topics.config_for)
        self.standby = Standby(
            self.identity,
            self.service,
            leaders.open_channel,
            topics=topics,
            memory=memory,
            clock=disk.clock,
            settings=self.settings,
        )
        self.standby.set_leaders(leaders.nodes)

    async def __aenter__(self) -> Self:
        await self.service.__aenter__()
        self._task = asyncio.create_task(self.standby.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self.service.__aexit__(None, None, None)
        assert self._task.cancelled(), self._task.exception()

    def replica(self, topic: str = "orders", partition: int = 0) -> ReplicaStatus | None:
        """Return the status of a replica; None without one."""
        found = (each for each in self.standby.status().replicas if (each.topic, each.partition) == (topic, partition))
        return next(found, None)

    async def reaches(self, end_offset: int, topic: str = "orders", partition: int = 0) -> None:
        """Return when a replica has that log end offset; time goes on meanwhile."""

        def has_reached() -> bool:
            self.disk.clock.advance(0.05)
            replica = self.replica(topic, partition)
            return replica is not None and replica.log_end_offset == end_offset

        await eventually(
            has_reached, what=f"{topic}-{partition} to end at {end_offset}: {self.replica(topic, partition)}"
        )

    async def push(
        self, *entries: PartitionAppend, leader_id: int = 1, leader_process: int = 1, replica_epoch: int = 100
    ) -> AppendRecordsResponse:
        """Send a request of a leader."""
        request = AppendRecordsRequest(
            cluster_id="cluster",
            leader_id=leader_id,
            leader_process_epoch=leader_process,
            replica_epoch=replica_epoch,
            partitions=entries,
        )
        return await self.standby.append_records(request, PeerIdentity(leader_id, leader_process))

    async def content(self, topic: str = "orders", partition: int = 0) -> bytes:
        """Return the bytes of a replica's log."""
        return b"".join(await read_content(self.service, TopicPartition(topic, partition)))
