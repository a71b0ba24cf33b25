"""Settings of a standby, and its identity."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from tierd.replication.follower.pull_fetcher import PullSettings
from tierd.replication.follower.rules.followed_partition import FollowerTimes
from tierd.replication.follower.standby_topics import FlushPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbySettings:
    """Settings of one standby.

    Attributes:
        state_dir: directory of the file with what the standby remembers.
        log_dirs: log dirs of the copies, whose free space is watched.
        flush: when records are on stable storage; ``StandbyTopics`` has the interval.
        max_memory_bytes: size of the records that wait for the disk at a time.
        disk_reserve_bytes: free space below which no records are taken: a full disk takes its log dir offline.
        is_push_enabled: False makes the standby fetch.
        times: of the follower rules.
        fetch: limits of the requests to each leader.
        assignments_wait_s: time for which a leader may hold back an answer about its partitions.
        lost_after_s: time without an answer after which what a leader announced does not count as fresh.
        save_interval_s: time between two saves of the times at which compacted copies had everything.
        retry_s: time after which a step that failed is tried again.
        tick_s: time between two looks at the leaders' silence and at the disk.
    """

    state_dir: Path
    log_dirs: Collection[Path] = ()
    flush: FlushPolicy = "never"
    max_memory_bytes: int = 128 << 20
    disk_reserve_bytes: int = 64 << 20
    is_push_enabled: bool = True
    times: FollowerTimes = field(default_factory=FollowerTimes)
    fetch: PullSettings = field(default_factory=PullSettings)
    assignments_wait_s: float = 10.0
    lost_after_s: float = 30.0
    save_interval_s: float = 60.0
    retry_s: float = 5.0
    tick_s: float = 1.0
