"""KeyRing: the keys that wrap the data keys of segments, and from which the keys of tags of small objects are derived.

One key is active and makes what is new; all of them open and verify.
"""

import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tierd.errors import RemoteIntegrityError, RemoteKeyMissingError
from tierd.remote.transform.aes_gcm import KEY_BYTES, aes_gcm, expanded_key, opened
from tierd.remote.transform.binding import SegmentBinding

_NONCE_BYTES = 12
_TAG_KEY_PURPOSE = b"tierd objects 1"
_TAG_DOMAIN = b"tierd object 1\x00"
_SECRET_DOMAIN = b"tierd secret 1\x00"


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as a manifest carries it: nonce, encrypted key and tag; worthless without the ring."""

    key_id: str
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class RingTag:
    """Tag of a message: HMAC-SHA256 in hexadecimal digits, under a key that follows from the ring's key ``key_id``."""

    key_id: str
    tag: str


class KeyRing:
    """Keys by their ids.

    A ring key encrypts data keys, each under a random nonce of 96 bits. 2^32 segments are far below what a key may wrap
    that way, and a rotation begins anew. The key of tags is derived from the ring key.

    Args:
        active_id: the key that wraps the data keys of new segments; None where nothing is encrypted.
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
        self._keys = {key_id: aes_gcm(key) for key_id, key in keys.items()}
        self._tag_keys = {key_id: expanded_key(key, _TAG_KEY_PURPOSE) for key_id, key in keys.items()}
        self._tagging_id = active_id or next(iter(keys), None)

    def __repr__(self) -> str:
        return f"KeyRing(active_id={self.active_id!r}, ids={sorted(self._keys)})"

    @property
    def is_empty(self) -> bool:
        """Return True for a ring without keys: no object in the bucket can be proven, and no proof is asked for."""
        return not self._keys

    def tag(self, message: bytes) -> RingTag:
        """Return the tag of ``message`` under the active key; under the first key of a ring without an active one.

        Raises:
            ValueError: the ring is empty.
        """
        if self._tagging_id is None:
            raise ValueError("the ring has no key")
        return RingTag(self._tagging_id, self._tag_under(self._tagging_id, message))

    def is_tag_of(self, message: bytes, tag: RingTag) -> bool:
        """Return whether ``tag`` is the tag of ``message`` under a key of the ring."""
        if tag.key_id not in self._tag_keys:
            return False
        return hmac.compare_digest(self._tag_under(tag.key_id, message).encode(), tag.tag.encode())

    def _tag_under(self, key_id: str, message: bytes) -> str:
        name = key_id.encode()
        bound = _TAG_DOMAIN + len(name).to_bytes(2, "big") + name + message
        return hmac.digest(self._tag_keys[key_id], bound, "sha256").hex()

    def wrap(self, data_key: bytes, binding: SegmentBinding) -> WrappedKey:
        """Wrap a data key under the active key.

        Raises:
            ValueError: no key is active.
        """
        return self._sealed(data_key, binding.for_data_key)

    def unwrap(self, wrapped: WrappedKey, binding: SegmentBinding, *, key: str) -> bytes:
        """Return the data key.

        Args:
            wrapped: as the manifest says.
            binding: whose segment it must be.
            key: of the manifest, for errors.

        Raises:
            RemoteKeyMissingError: the ring has no such key.
            RemoteIntegrityError: the wrapped key was changed, is another segment's, or another ring key wrapped it.
        """
        data_key = self._opened(wrapped, binding.for_data_key, f"{key}: its data key is wrapped")
        if data_key is None:
            raise RemoteIntegrityError(
                f"{key}: the data key does not open with key {wrapped.key_id!r}",
                remedy="the manifest was changed or is another segment's, or that key of the ring is not what it was",
            )
        return data_key

    def seal(self, secret: bytes, binding: bytes) -> WrappedKey:
        """Encrypt a small secret, such as the verifiers of passwords, under the active key.

        Raises:
            ValueError: no key is active.
        """
        return self._sealed(secret, partial(_for_secret, binding))

    def unseal(self, sealed: WrappedKey, binding: bytes, *, key: str) -> bytes:
        """Return the secret that ``seal`` encrypted.

        Args:
            sealed: as the object says.
            binding: of the object that must have it.
            key: of the object, for errors.

        Raises:
            RemoteKeyMissingError: the ring has no such key.
            RemoteIntegrityError: the secret was changed, is another object's, or another ring key sealed it.
        """
        secret = self._opened(sealed, partial(_for_secret, binding), f"{key}: its secret is sealed")
        if secret is None:
            raise RemoteIntegrityError(
                f"{key}: its secret does not open with key {sealed.key_id!r}",
                remedy="the object was changed, or that key of the ring is not what it was",
            )
        return secret

    def _sealed(self, content: bytes, bound_to: Callable[[str], bytes]) -> WrappedKey:
        """Encrypt ``content`` under the active key, with what ``bound_to`` makes of the key's id as associated data."""
        if self.active_id is None:
            raise ValueError("no key of the ring is active")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self.active_id].encrypt(nonce, content, bound_to(self.active_id))
        return WrappedKey(self.active_id, nonce + sealed)

    def _opened(self, wrapped: WrappedKey, bound_to: Callable[[str], bytes], how: str) -> bytes | None:
        """Return what ``_sealed`` encrypted, None if it does not open; ``how`` begins the error of a missing key."""
        ring_key = self._keys.get(wrapped.key_id)
        if ring_key is None:
            raise RemoteKeyMissingError(
                f"{how} with key {wrapped.key_id!r}, which is not in the key ring",
                remedy=f"add the key with id {wrapped.key_id} to remote.encryption.keys",
            )
        nonce, sealed = wrapped.wrapped[:_NONCE_BYTES], wrapped.wrapped[_NONCE_BYTES:]
        return opened(ring_key, nonce, sealed, bound_to(wrapped.key_id))


def _for_secret(binding: bytes, key_id: str) -> bytes:
    name = key_id.encode()
    return _SECRET_DOMAIN + len(name).to_bytes(2, "big") + name + binding


EMPTY_RING = KeyRing(None, {})
