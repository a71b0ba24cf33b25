"""HostSettings: the part of the file that names the host, its log dirs and the metadata store."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tierd.config.places import PlacedFaultsError, path_faults
from tierd.config.section import Settings
from tierd.config.sections.metadata_settings import MetadataSettings
from tierd.config.state_dir import DEFAULT_STATE_DIR
from tierd.config.traversal import is_written, leaf_values
from tierd.config.values import AbsolutePath, OwnPath, Text, WholeNumber


class LogDirSettings(Settings):
    """One directory of partitions."""

    path: AbsolutePath = Field(description="a directory of the broker's log.dirs", examples=["/var/lib/kafka/data"])
    owner: Literal["kafka", "tierd"] = Field(
        "kafka", description="kafka: a broker writes the logs, and tierd only reads; tierd: tierd writes the logs"
    )


class HostSettings(Settings):
    """The host, its log dirs and the metadata store: all that a command needs which lists rows of the metadata."""

    cluster_id: Text | None = Field(
        None, min_length=1, description="Kafka's cluster id; default: the id in meta.properties of the log dirs"
    )
    node_id: WholeNumber | None = Field(
        None, ge=0, description="id of this broker; default: the id in meta.properties of the log dirs"
    )
    state_dir: OwnPath = Field(
        DEFAULT_STATE_DIR,
        description="directory of tierd's own files: metadata, holds, caches, the control socket, the lock",
    )
    log_dirs: tuple[LogDirSettings, ...] = Field(min_length=1, description="the broker's log.dirs, each with its owner")
    metadata: MetadataSettings = Field(
        default_factory=MetadataSettings, description="the metadata store, which has a row for each copied segment"
    )

    @property
    def sqlite_path(self) -> Path:
        """Return the path of the SQLite metadata file."""
        return self.metadata.sqlite.path or self.state_dir / "metadata.db"

    @model_validator(mode="after")
    def _paths_keep_apart(self) -> "HostSettings":
        paths = [(place, field, value) for place, field, value in leaf_values(self) if isinstance(value, Path)]
        log_dirs = {place: path for place, _, path in paths if place[0] == "log_dirs"}
        own = {place: path for place, field, path in paths if is_written(field)}
        if faults := path_faults(log_dirs, own):
            raise PlacedFaultsError(faults)
        return self
