"""Every metadata store, as one fixture."""

from tests.metadata.conftest import any_store

__all__ = ["any_store"]
