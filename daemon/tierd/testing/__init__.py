"""The contract suites of every metadata backend and every object store, for pytest.

A package with a backend of its own subclasses a contract and provides its fixtures (docs/backends.md). Needs the extra
``testing``; no other room imports this one.
"""

import pytest

pytest.register_assert_rewrite(
    "tierd.testing.key_value_store", "tierd.testing.object_store_contract", "tierd.testing.object_versions"
)

from tierd.testing.bodies import checksums_of, chunked_body, chunks_of, content_of, file_body
from tierd.testing.cancellation import cancel_at
from tierd.testing.key_value_store import KeyValueStoreContract
from tierd.testing.object_store_contract import LARGE_BYTES, ObjectStoreContract
from tierd.testing.object_versions import (
    KeptVersionsContract,
    ObjectVersionsContract,
    versions_left,
)

__all__ = [
    "LARGE_BYTES",
    "KeptVersionsContract",
    "KeyValueStoreContract",
    "ObjectStoreContract",
    "ObjectVersionsContract",
    "cancel_at",
    "checksums_of",
    "chunked_body",
    "chunks_of",
    "content_of",
    "file_body",
    "versions_left",
]
