from uuid import UUID

import pytest

from tests.fakes.transforms import RING_KEYS, ring
from tierd.errors import RemoteIntegrityError, RemoteKeyMissingError
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.key_ring import EMPTY_RING, KeyRing, WrappedKey

BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
OTHER = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABD), 10, 19)
DATA_KEY = bytes(range(100, 132))


def test_a_data_key_comes_back_from_any_key_of_the_ring() -> None:
    wrapped = ring("old").wrap(DATA_KEY, BINDING)
    assert wrapped.key_id == "old"
    assert len(wrapped.wrapped) == 12 + 32 + 16
    assert ring("new").unwrap(wrapped, BINDING, key="k") == DATA_KEY


def test_no_two_wrappings_are_alike() -> None:
    assert ring().wrap(DATA_KEY, BINDING) != ring().wrap(DATA_KEY, BINDING)


def test_a_key_that_is_missing_is_named_with_the_place_where_it_belongs() -> None:
    wrapped = ring("old").wrap(DATA_KEY, BINDING)
    with pytest.raises(RemoteKeyMissingError, match=r"a\.manifest: .*'old'") as missing:
        ring("new", "new").unwrap(wrapped, BINDING, key="a.manifest")
    assert "remote.encryption.keys" in missing.value.remedy
    assert "old" in missing.value.remedy


def test_the_key_of_another_segment_does_not_open() -> None:
    wrapped = ring().wrap(DATA_KEY, BINDING)
    with pytest.raises(RemoteIntegrityError, match="does not open"):
        ring().unwrap(wrapped, OTHER, key="k")


def test_the_same_id_with_another_key_does_not_open() -> None:
    wrapped = ring().wrap(DATA_KEY, BINDING)
    with pytest.raises(RemoteIntegrityError, match="does not open with key 'old'"):
        KeyRing("old", {"old": RING_KEYS["new"]}).unwrap(wrapped, BINDING, key="k")


def test_wrapped_key_with_any_flipped_bit_does_not_open() -> None:
    wrapped = ring().wrap(DATA_KEY, BINDING)
    for at in range(len(wrapped.wrapped) * 8):
        changed = bytearray(wrapped.wrapped)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(RemoteIntegrityError):
            ring().unwrap(WrappedKey("old", bytes(changed)), BINDING, key="k")
    for length in range(len(wrapped.wrapped)):
        with pytest.raises(RemoteIntegrityError):
            ring().unwrap(WrappedKey("old", wrapped.wrapped[:length]), BINDING, key="k")


def test_keys_are_not_in_the_repr_of_a_ring() -> None:
    shown = repr(ring())
    assert shown == "KeyRing(active_id='old', ids=['new', 'old'])"
    assert repr(EMPTY_RING) == "KeyRing(active_id=None, ids=[])"


def test_keys_of_another_length_and_an_active_key_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="31 bytes"):
        KeyRing(None, {"short": bytes(31)})
    with pytest.raises(ValueError, match="no key b"):
        KeyRing("b", {"a": bytes(32)})
    with pytest.raises(ValueError, match="active"):
        EMPTY_RING.wrap(DATA_KEY, BINDING)


def test_secret_opens_with_its_key_and_its_binding_only() -> None:
    sealed = ring("old").seal(b"verifier", b"place")
    assert ring("new").unseal(sealed, b"place", key="k") == b"verifier"
    assert ring("old").seal(b"verifier", b"place") != sealed
    with pytest.raises(RemoteIntegrityError, match="does not open"):
        ring("old").unseal(sealed, b"another place", key="k")
    with pytest.raises(RemoteIntegrityError, match="does not open"):
        ring("old").unseal(WrappedKey("new", sealed.wrapped), b"place", key="k")
    with pytest.raises(RemoteKeyMissingError, match="'old'"):
        ring("new", "new").unseal(sealed, b"place", key="k")


def test_nothing_is_sealed_without_an_active_key() -> None:
    with pytest.raises(ValueError, match="no key"):
        ring(None).seal(b"verifier", b"place")
