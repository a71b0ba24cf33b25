"""The clean-stop marker of a log dir, ``.kafka_cleanshutdown`` (log-format 1.6; Kafka: CleanShutdownFileHandler)."""

from pathlib import Path

import structlog

from tierd.json_parsing import parse_json
from tierd.log.files.disk import Disk, read_file, unlink_if_there

log = structlog.get_logger()

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1
_LIMIT_BYTES = 64 << 10
_MAX_LONG = (1 << 63) - 1


def has_clean_shutdown(disk: Disk, log_dir: Path) -> bool:
    """Return True if the clean-shutdown marker exists; its presence alone means that the last stop was clean."""
    return disk.status(log_dir / CLEAN_SHUTDOWN_FILE) is not None


def read_broker_epoch(disk: Disk, log_dir: Path) -> int | None:
    """Return the broker epoch in the marker; None without a marker, or for a marker without an epoch.

    Raises:
        OSError: it cannot be read.
    """
    path = log_dir / CLEAN_SHUTDOWN_FILE
    status = disk.status(path)
    if status is None or not 0 < status.size_bytes <= _LIMIT_BYTES:
        return None
    epoch = parse_broker_epoch(read_file(disk, path))
    if epoch is None:
        log.warning("clean_shutdown_file_unreadable", file=str(path))
    return epoch


def parse_broker_epoch(data: bytes) -> int | None:
    """Return the ``brokerEpoch`` of the marker's JSON; None for any other content. Other keys do not matter."""
    try:
        content = parse_json(data)
    except ValueError:
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    is_long = isinstance(epoch, int) and not isinstance(epoch, bool) and -_MAX_LONG - 1 <= epoch <= _MAX_LONG
    return epoch if is_long else None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the bytes that Kafka would write."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def write_clean_shutdown(disk: Disk, log_dir: Path, *, broker_epoch: int = NO_BROKER_EPOCH) -> None:
    """Say that everything in the log dir is on stable storage; durably, in place.

    Raises:
        OSError: the disk is full or failing.
    """
    file = disk.open(log_dir / CLEAN_SHUTDOWN_FILE, create=True)
    try:
        file.truncate(0)
        file.write(0, [encode_clean_shutdown(broker_epoch)])
        file.sync()
    finally:
        file.close()
    disk.sync_directory(log_dir)


def delete_clean_shutdown(disk: Disk, log_dir: Path) -> bool:
    """Remove the marker, before anything in the log dir is changed; return whether it was there.

    Durably, which Kafka does not trouble about: a marker that comes back after a power cut would vouch for torn logs.

    Raises:
        OSError: the disk is failing.
    """
    was_there = unlink_if_there(disk, log_dir / CLEAN_SHUTDOWN_FILE)
    if was_there:
        disk.sync_directory(log_dir)
    return was_there
