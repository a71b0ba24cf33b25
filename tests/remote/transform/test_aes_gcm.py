"""Keys that follow from keys, by the vectors of RFC 5869, and what the cipher opens."""

import os

import pytest

from tierd.remote.transform.aes_gcm import KEY_BYTES, aes_gcm, derived_key, expanded_key, opened


def test_expanded_key_is_that_of_the_first_case_of_rfc_5869() -> None:
    pseudorandom = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")

    key = expanded_key(pseudorandom, bytes(range(0xF0, 0xFA)))

    assert key.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    assert len(key) == KEY_BYTES


def test_derived_key_is_that_of_the_third_case_of_rfc_5869() -> None:
    key = derived_key(b"\x0b" * 22, b"")

    assert key.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_cipher_opens_what_it_sealed() -> None:
    cipher, nonce = aes_gcm(os.urandom(KEY_BYTES)), os.urandom(12)

    assert opened(cipher, nonce, cipher.encrypt(nonce, b"content", b"bound"), b"bound") == b"content"


@pytest.mark.parametrize(
    ("nonce", "cut", "bound"), [(bytes(11) + b"\x01", 0, b"bound"), (bytes(12), 1, b"bound"), (bytes(12), 0, b"other")]
)
def test_piece_of_another_nonce_length_or_binding_is_not_opened(nonce: bytes, cut: int, bound: bytes) -> None:
    cipher = aes_gcm(os.urandom(KEY_BYTES))
    sealed = cipher.encrypt(bytes(12), b"content", b"bound")

    assert opened(cipher, nonce, sealed[: len(sealed) - cut], bound) is None


def test_piece_shorter_than_a_tag_is_not_opened() -> None:
    assert opened(aes_gcm(os.urandom(KEY_BYTES)), bytes(12), b"", b"") is None
