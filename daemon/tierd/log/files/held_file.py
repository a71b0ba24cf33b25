"""HeldFile: a file that its one writer keeps open while it needs it, under the present name of the file."""

from pathlib import Path

from tierd.log.files.disk import Disk, DiskFile, unlink_if_there


class HeldFile:
    """Base of a segment's writable files: path, disk and handle. The subclass opens the handle."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._file: DiskFile | None = None

    @property
    def exists(self) -> bool:
        """Return True if the file exists."""
        return self._disk.status(self.path) is not None

    def rename(self, path: Path) -> None:
        """Rename the file, if it exists."""
        if self.exists:
            self._disk.rename(self.path, path)
        self.renamed(path)

    def renamed(self, path: Path) -> None:
        """Take note of the name that the file has now."""
        self.path = path
        if self._file:
            self._file.renamed(path)

    def release_handle(self) -> None:
        """Give the open file back; the next call that writes opens it again."""
        file, self._file = self._file, None
        if file:
            file.close()

    def close_handle(self) -> None:
        """Give the open file back; it stays as it is."""
        self.release_handle()

    def delete(self) -> bool:
        """Give the open file back and remove the file; return whether it was there."""
        self.close_handle()
        return unlink_if_there(self._disk, self.path)
