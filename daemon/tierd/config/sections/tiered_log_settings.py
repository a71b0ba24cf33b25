"""TieredLogSettings: the part of the file that finds the local log and the remote segments of a partition."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tierd.config.section import Settings
from tierd.config.sections.host_settings import HostSettings
from tierd.config.sections.remote_settings import RemoteSettings
from tierd.config.values import MIB, ByteLimit, ByteSize, Duration, OwnPath, Rate, WholeNumber


class HoldSettings(Settings):
    """Protection of waiting segments: tierd keeps their bytes on disk although the broker deletes them."""

    mode: Literal["auto", "link", "descriptor", "none"] = Field(
        "auto", description="auto: hard links if possible, else open files; none: a segment may be lost before its copy"
    )
    dir: OwnPath | None = Field(
        None,
        description="directory of the links, outside the log dirs on their file system; default: hold in state_dir",
    )
    max_bytes: ByteLimit = Field(
        50 * 1024 * MIB,
        ge=0,
        description="limit of the bytes of held segments; segments above the limit are copied without a hold",
    )

    def directory(self, state_dir: Path) -> Path:
        """Return the directory in which held segments are linked."""
        return self.dir or state_dir / "hold"


class FetchSettings(Settings):
    """Reads of records from the tier."""

    cache_dir: OwnPath | None = Field(None, description="directory of cached chunks; default: cache in state_dir")
    cache_bytes: ByteSize = Field(1024 * MIB, ge=0, description="size of the chunk cache on disk; 0: no cache")
    index_cache_bytes: ByteSize = Field(1024 * MIB, ge=0, description="size of the index cache on disk; 0: no cache")
    prefetch_bytes: ByteSize = Field(
        32 * MIB, alias="prefetch", ge=0, description="bytes that a sequential reader of the tier requests in advance"
    )
    concurrency: WholeNumber = Field(10, ge=1, le=256, description="number of reads from the tier at the same time")
    max_pending: WholeNumber = Field(
        100, ge=1, le=100_000, description="number of reads from the tier that may wait; further reads are refused"
    )
    max_wait_s: Duration = Field(
        0.5, alias="max_wait", gt=0, description="longest time that one fetch waits for bytes from the tier"
    )
    timestamp_timeout_s: Duration = Field(
        30.0, alias="timestamp_timeout", gt=0, description="time limit of a search for an offset by timestamp"
    )
    max_bytes_per_second: Rate = Field(None, gt=0, description="limit of the rate of all reads from the tier together")
    quota_windows: WholeNumber = Field(
        11, ge=2, le=3600, description="number of windows over which the read rate is measured"
    )
    quota_window_s: Duration = Field(1.0, alias="quota_window", gt=0, description="length of one window")

    def directory(self, state_dir: Path) -> Path:
        """Return the directory of fetched chunks and indexes."""
        return self.cache_dir or state_dir / "cache"


class TieredLogSettings(HostSettings):
    """The host and the places of local, held and remote segments: all that a command needs which finds a record."""

    remote: RemoteSettings
    hold: HoldSettings = Field(default_factory=HoldSettings)
    fetch: FetchSettings = Field(default_factory=FetchSettings)

    @property
    def hold_dir(self) -> Path:
        """Return the directory in which held segments are linked."""
        return self.hold.directory(self.state_dir)

    @property
    def cache_dir(self) -> Path:
        """Return the directory of fetched chunks and indexes."""
        return self.fetch.directory(self.state_dir)
