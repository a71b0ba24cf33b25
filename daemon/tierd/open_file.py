"""OpenFile: a file that several owners have open, without one of them to close it."""

import os
import weakref
from pathlib import Path


class OpenFile:
    """File that is open to read until the last reference to this object is gone, also after it was deleted.

    Attributes:
        path: name of the file when it was opened, for messages.
        descriptor: to read from; no owner closes it.
        inode: of the file.
        is_doubted: an owner has found the file shorter or not readable; the next owner has to check it again.
    """

    __slots__ = ("__weakref__", "descriptor", "inode", "is_doubted", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        """Own ``descriptor``, which is closed in the thread that drops the last reference."""
        self.path = path
        self.descriptor = descriptor
        self.is_doubted = False
        weakref.finalize(self, os.close, descriptor).atexit = False
        self.inode = os.fstat(descriptor).st_ino
