"""A bucket of Google Cloud Storage as an object store."""

from tierd.remote.backends.gcs.gcs_object_store import GcsObjectStore

__all__ = ["GcsObjectStore"]
