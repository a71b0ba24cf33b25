"""KeyRing: the keys that wrap the data keys of segments. One is active and wraps new ones, all of them unwrap."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tierd.errors import RemoteIntegrityError, RemoteKeyMissingError
from tierd.remote.transform.binding import SegmentBinding

KEY_BYTES = 32
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as a manifest carries it: nonce, encrypted key and tag; worthless without the ring."""

    key_id: str
    wrapped: bytes


class KeyRing:
    """Keys by their ids.

    A ring key encrypts nothing but data keys, each under a random nonce of 96 bits: 2^32 segments are far below what
    a key may wrap that way, and a rotation begins anew.

    Args:
        active_id: what new segments are wrapped with; None where nothing is encrypted.
        keys: id to 32 bytes each.

    Raises:
        ValueError: a key of another length, or no key of the active id.
    """

    def __init__(self, active_id: str | None, keys: Mapping[str, bytes]) -> None:
        for key_id, key in keys.items():
            if len(key) != KEY_BYTES:
                raise ValueError(f"key {key_id} of the ring has {len(key)} bytes, not {KEY_BYTES}")
        if active_id is not None and active_id not in keys:
            raise ValueError(f"the ring has no key {active_id}")
        self.active_id = active_id
        self._keys = {key_id: AESGCM(key) for key_id, key in keys.items()}

    def __repr__(self) -> str:
        return f"KeyRing(active_id={self.active_id!r}, ids={sorted(self._keys)})"

    def wrap(self, data_key: bytes, binding: SegmentBinding) -> WrappedKey:
        """Wrap a data key under the active key.

        Raises:
            ValueError: no key is active.
        """
        if self.active_id is None:
            raise ValueError("no key of the ring is active")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self.active_id].encrypt(nonce, data_key, binding.for_data_key(self.active_id))
        return WrappedKey(self.active_id, nonce + sealed)

    def unwrap(self, wrapped: WrappedKey, binding: SegmentBinding, *, key: str) -> bytes:
        """Return the data key.

        Args:
            wrapped: as the manifest says.
            binding: whose segment it must be.
            key: of the manifest, for errors.

        Raises:
            RemoteKeyMissingError: the ring has no such key.
            RemoteIntegrityError: it was changed, belongs to another segment, or the ring's key is another one.
        """
        ring_key = self._keys.get(wrapped.key_id)
        if ring_key is None:
            raise RemoteKeyMissingError(
                f"{key}: its data key is wrapped with key {wrapped.key_id!r}, which is not in the key ring",
                remedy=f"add the key with id {wrapped.key_id} to remote.encryption.keys",
            )
        nonce, sealed = wrapped.wrapped[:_NONCE_BYTES], wrapped.wrapped[_NONCE_BYTES:]
        try:
            return ring_key.decrypt(nonce, sealed, binding.for_data_key(wrapped.key_id))
        except (InvalidTag, ValueError):
            raise RemoteIntegrityError(
                f"{key}: the data key does not open with key {wrapped.key_id!r}",
                remedy="the manifest was changed or is another segment's, or that key of the ring is not what it was",
            ) from None


EMPTY_RING = KeyRing(None, {})
