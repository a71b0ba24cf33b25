"""ExportRequest: what an export writes, and where. It is imported without pyarrow."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tierd.app import SourceRequest
from tierd.model import IsolationLevel
from tierd.scanning import AtTime


class ExportFormat(StrEnum):
    """Format of the files, which is also the end of their names."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSONL = "jsonl"


class ExportFolder(StrEnum):
    """Value that folders are named for: ``<name>=<value>``, as Hive names them. Files in them lack that column."""

    TOPIC = "topic"
    PARTITION = "partition"
    DATE = "date"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLimits:
    """Limits of a file.

    Attributes:
        rows: most records; None for no limit.
        size_bytes: a file ends behind the batch with which it reaches this size.
    """

    rows: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Request to export topics.

    Attributes:
        patterns: regular expressions; a topic is wanted if its whole name matches one.
        into: the directory.
        start: an offset or a time; None for the log start.
        end: exclusive; None for the present end.
        folders: levels of folders, outermost first.
        source: the tier, and where its metadata is.
    """

    patterns: tuple[str, ...]
    into: Path
    format: ExportFormat
    start: int | AtTime | None
    end: int | AtTime | None
    isolation: IsolationLevel
    limits: ExportLimits
    folders: tuple[ExportFolder, ...]
    source: SourceRequest

    def job(self, cluster_id: str) -> dict[str, Any]:
        """Return what tells this export from others, for the journal: JSON values."""
        return {
            "cluster_id": cluster_id,
            "patterns": list(self.patterns),
            "format": self.format.value,
            "from": _place(self.start),
            "to": _place(self.end),
            "isolation": self.isolation.value,
            "rows_per_file": self.limits.rows,
            "bytes_per_file": self.limits.size_bytes,
            "partitioned_by": [folder.value for folder in self.folders],
        }


def _place(place: int | AtTime | None) -> int | str | None:
    return f"{place.timestamp_ms} ms" if isinstance(place, AtTime) else place
