"""unreadable: the error for a local file that was to be stored and cannot be read."""

from pathlib import Path

from tierd.errors import RemoteIntegrityError, RemoteStorageError


def unreadable(path: Path, error: OSError) -> RemoteStorageError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return RemoteIntegrityError(f"{path} is gone since it was checked", remedy="the partition is looked at again")
    return RemoteStorageError(
        f"cannot read {path}: {error.strerror or error}", remedy=f"check the disk that holds {path}"
    )
