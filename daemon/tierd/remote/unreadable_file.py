"""What is wrong with a local file that was to be stored."""

from pathlib import Path

from tierd.errors import RemoteIntegrityError, RemoteStorageError


def unreadable(path: Path, error: OSError) -> RemoteStorageError:
    """The error for a source that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return RemoteIntegrityError(f"{path} is gone since it was checked", remedy="the partition is looked at again")
    return RemoteStorageError(
        f"cannot read {path}: {error.strerror or error}", remedy=f"check the disk that holds {path}"
    )
