"""A directory as an object store: one file for each object."""

from tierd.remote.backends.files.filesystem_object_store import FilesystemObjectStore

__all__ = ["FilesystemObjectStore"]
