import base64

import pytest

from tests.fakes.transforms import RING_KEYS
from tierd.config import RemoteSettings
from tierd.remote import open_key_ring, open_transform

KEYS = [{"id": key_id, "key": base64.b64encode(key).decode()} for key_id, key in RING_KEYS.items()]


def settings(**sections: object) -> RemoteSettings:
    return RemoteSettings.model_validate({"backend": "filesystem", "filesystem": {"path": "/tier"}} | sections)


def test_transform_without_settings_stores_plain_bytes() -> None:
    transform = open_transform(settings())
    assert (transform.level, transform.encrypts, transform.ring.active_id) == (None, False, None)


def test_compression_has_a_level() -> None:
    assert open_transform(settings(compression={"type": "zstd", "level": 7})).level == 7
    assert open_transform(settings(compression={"type": "none", "level": 7})).level is None


def test_encryption_takes_the_active_key_of_the_ring() -> None:
    transform = open_transform(settings(encryption={"enabled": True, "active_key": "new", "keys": KEYS}))
    assert transform.encrypts
    assert transform.ring.active_id == "new"
    assert repr(transform) == "Transform(level=None, encrypts=True, ring=KeyRing(active_id='new', ids=['new', 'old']))"


@pytest.mark.parametrize("active", [{}, {"active_key": "old"}])
def test_ring_is_opened_for_old_segments_when_encryption_is_off(active: dict[str, str]) -> None:
    asked = settings(encryption={"enabled": False, "keys": KEYS} | active)
    assert not open_transform(asked).encrypts
    assert open_key_ring(asked.encryption).active_id == active.get("active_key")
    assert "old" in repr(open_key_ring(asked.encryption))
