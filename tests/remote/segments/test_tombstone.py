import json

import pytest

from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.remote import Tombstone

TOMBSTONE = Tombstone("retention-time", deleted_at_ms=5, delete_after_ms=9, broker_id=1, detail="older than 7 days")


def test_tombstone_is_decoded_as_it_was_encoded() -> None:
    assert Tombstone.decode(TOMBSTONE.encode(), key="k") == TOMBSTONE
    assert json.loads(TOMBSTONE.encode()) == {
        "format_version": 1,
        "reason": "retention-time",
        "deleted_at_ms": 5,
        "delete_after_ms": 9,
        "broker_id": 1,
        "detail": "older than 7 days",
    }


def test_tombstone_of_a_later_version_is_refused_and_a_further_field_is_not() -> None:
    fields = json.loads(TOMBSTONE.encode())
    assert Tombstone.decode(json.dumps(fields | {"colour": 3}).encode(), key="k") == TOMBSTONE
    with pytest.raises(RemoteStorageError, match="format_version 2"):
        Tombstone.decode(json.dumps(fields | {"format_version": 2}).encode(), key="k")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"7", b"\xff", b'{"format_version": 1}']
    + [
        json.dumps(json.loads(TOMBSTONE.encode()) | change).encode()
        for change in ({"reason": 1}, {"deleted_at_ms": "5"}, {"broker_id": True}, {"delete_after_ms": None})
    ],
)
def test_content_that_is_no_tombstone_is_damage(content: bytes) -> None:
    with pytest.raises(RemoteIntegrityError, match=r"a\.tombstone is no tombstone"):
        Tombstone.decode(content, key="a.tombstone")
