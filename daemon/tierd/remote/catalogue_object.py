"""CatalogueCodec: an object of the catalogue as bytes: JSON with a tag, compressed where its name ends in ``.zst``.

::

    {"format_version": 1, "cluster_id": …, fields of the kind …,
     "secret": {"key_id": …, "sealed": base64 of nonce, AES-256-GCM of the content and tag},     only with an active key
     "authentication": {…}}                                                                      only with a key ring

A part of an object may be secret: the snapshot of the cluster metadata has the verifiers of passwords. With an active
key of the ring it is sealed, otherwise it is plain base64 in ``secret``. Fields of a later tierd are ignored.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final, cast

import zstandard

from tierd.errors import RemoteFormatError, RemoteIntegrityError
from tierd.json_parsing import parse_json
from tierd.remote.object_limits import CATALOGUE, MAX_CATALOGUE_BYTES, MAX_CATALOGUE_VALUES, too_large
from tierd.remote.transform.binding import catalogue_binding
from tierd.remote.transform.key_ring import KeyRing, WrappedKey
from tierd.remote.transform.object_tag import AUTHENTICATION, require_tag, tagged_anew, with_tag

FORMAT_VERSION: Final = 1
COMPRESSED_SUFFIX: Final = ".zst"
_LEVEL: Final = 3
_SECRET: Final = "secret"
_REMEDY: Final = "restore the object from a version of it, or delete it: a running tierd writes newer ones"


class CatalogueCodec:
    """Codec of the objects of one cluster's catalogue, with the key ring. Calls block for large objects.

    Args:
        cluster_id: is part of every object.
        prefix: beginning of every key of the catalogue; an object is bound to the rest of its key.
        ring: proves objects and seals secrets; an empty ring asks for no proof.
    """

    def __init__(self, cluster_id: str, prefix: str, ring: KeyRing) -> None:
        self._cluster_id = cluster_id
        self._prefix = prefix
        self._ring = ring

    def encode(self, key: str, fields: Mapping[str, object], *, secret: bytes | None = None) -> bytes:
        """Return the object of ``key`` with these fields.

        Raises:
            RemoteIntegrityError: the object is larger than any reader would take.
        """
        whole = {"format_version": FORMAT_VERSION, "cluster_id": self._cluster_id, **fields}
        if secret is not None:
            whole[_SECRET] = self._sealed(key, secret)
        plain = with_tag((json.dumps(whole) + "\n").encode(), self._ring, self._binding(key))
        if len(plain) > MAX_CATALOGUE_BYTES:
            raise too_large(key, f"{len(plain)} bytes", CATALOGUE)
        return _compressed(plain) if key.endswith(COMPRESSED_SUFFIX) else plain

    def decode(self, key: str, content: bytes) -> dict[str, object]:
        """Return the fields of the object of ``key``, without those of the envelope.

        Raises:
            RemoteUnauthenticatedError: the key ring does not prove the object.
            RemoteFormatError: this tierd does not know its ``format_version``.
            RemoteIntegrityError: the content is no object of the catalogue, or that of another cluster.
        """
        plain = self._plain(key, content)
        require_tag(plain, self._ring, self._binding(key), key=key)
        fields = _fields(key, plain)
        if (found := fields.pop("format_version", None)) != FORMAT_VERSION:
            raise RemoteFormatError(
                f"{key}: the object has format_version {found!r}, this tierd reads {FORMAT_VERSION}",
                remedy="use the tierd version that wrote it, or a newer one",
            )
        if (cluster_id := fields.pop("cluster_id", None)) != self._cluster_id:
            raise RemoteIntegrityError(f"{key} is of cluster {cluster_id!r}", remedy=_REMEDY)
        fields.pop(AUTHENTICATION, None)
        return fields

    def secret(self, key: str, fields: Mapping[str, object]) -> bytes | None:
        """Return the secret of the object of ``key``, whose fields ``decode`` returned; None where it has none.

        Raises:
            RemoteKeyMissingError: the ring lacks the key that sealed it.
            RemoteIntegrityError: the secret is damaged, or is that of another object.
        """
        match fields.get(_SECRET):
            case None:
                return None
            case {"key_id": str(key_id), "sealed": str(text)}:
                return self._ring.unseal(WrappedKey(key_id, _bytes_of(key, text)), self._binding(key), key=key)
            case {"plain": str(text)}:
                return _bytes_of(key, text)
            case _:
                raise RemoteIntegrityError(f"{key}: its secret is damaged", remedy=_REMEDY)

    def rewrapped(self, key: str, content: bytes) -> bytes | None:
        """Return the object with tag and seal of the active key; None where it has them already.

        Raises:
            RemoteUnauthenticatedError: the key ring does not prove the object.
            RemoteKeyMissingError: the ring lacks the key that sealed the secret.
            RemoteIntegrityError: the content is no object of the catalogue.
        """
        plain = self._plain(key, content)
        require_tag(plain, self._ring, self._binding(key), key=key)
        fields = _fields(key, plain)
        match fields.get(_SECRET):
            case {"key_id": str(key_id)} if key_id != self._ring.active_id:
                secret = self.secret(key, fields)
                assert secret is not None, "the object has one"
                fields[_SECRET] = self._sealed(key, secret)
                tagged = with_tag((json.dumps(fields) + "\n").encode(), self._ring, self._binding(key))
            case _:
                again = tagged_anew(plain, self._ring, self._binding(key), key=key)
                if again is None:
                    return None
                tagged = again
        return _compressed(tagged) if key.endswith(COMPRESSED_SUFFIX) else tagged

    def require_proof(self, key: str, content: bytes) -> None:
        """Raise unless the key ring proves the object; an empty ring asks for no proof.

        Raises:
            RemoteUnauthenticatedError: nothing proves that a tierd with the key ring wrote it.
            RemoteIntegrityError: its compression is damaged.
        """
        if not self._ring.is_empty:
            require_tag(self._plain(key, content), self._ring, self._binding(key), key=key)

    def _sealed(self, key: str, secret: bytes) -> dict[str, object]:
        if self._ring.active_id is None:
            return {"plain": base64.b64encode(secret).decode()}
        sealed = self._ring.seal(secret, self._binding(key))
        return {"key_id": sealed.key_id, "sealed": base64.b64encode(sealed.wrapped).decode()}

    def _binding(self, key: str) -> bytes:
        return catalogue_binding(self._cluster_id, key.removeprefix(self._prefix))

    def _plain(self, key: str, content: bytes) -> bytes:
        if not key.endswith(COMPRESSED_SUFFIX):
            return content
        try:
            size = zstandard.get_frame_parameters(content).content_size
            if size > MAX_CATALOGUE_BYTES:
                raise too_large(key, f"{size} bytes of JSON", CATALOGUE)
            return zstandard.ZstdDecompressor().decompress(content, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise RemoteIntegrityError(f"{key} is no frame of zstd: {error}", remedy=_REMEDY) from error


def _compressed(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True, write_checksum=False).compress(plain)


def _fields(key: str, plain: bytes) -> dict[str, object]:
    try:
        parsed = parse_json(plain, max_values=MAX_CATALOGUE_VALUES)
    except ValueError as error:
        raise RemoteIntegrityError(f"{key} is not JSON: {error}", remedy=_REMEDY) from error
    if not isinstance(parsed, dict):
        raise RemoteIntegrityError(f"{key} is no JSON object", remedy=_REMEDY)
    return cast("dict[str, object]", parsed)


def _bytes_of(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemoteIntegrityError(f"{key}: its secret is not base64", remedy=_REMEDY) from error
