"""Every metadata store, as one fixture."""

from tests.metadata.conftest import any_store as any_store
