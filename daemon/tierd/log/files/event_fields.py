"""Fields that every log event of a partition has, so that one search finds all events of the partition."""

from pathlib import Path

from tierd.errors import PartitionNameError
from tierd.log.files.directory import parse_directory_name


def partition_fields(directory: Path) -> dict[str, str]:
    """Return ``partition`` and ``log_dir`` of a partition directory of any kind."""
    try:
        partition = str(parse_directory_name(directory.name)[0])
    except PartitionNameError:
        partition = directory.name
    return {"partition": partition, "log_dir": str(directory.parent)}
