"""Tags of the tier's small JSON objects: proof that a holder of the key ring wrote them, in the place where they lie.

A tombstone, a log start record and the report of an erasure carry the field ``authentication`` where a key ring is
configured. The tag covers what the object is bound to (its kind and the identity in its key) and every other field::

    message = text(kind), identity, JSON of all fields but authentication, with sorted names and no spaces
    tag     = HMAC-SHA256(HKDF-Expand(ring key, "tierd objects 1"), "tierd object 1" 00, text(key id), message)
"""

import json
from collections.abc import Mapping
from typing import Final

from tierd.errors import RemoteUnauthenticatedError
from tierd.json_parsing import parse_json
from tierd.remote.object_limits import MAX_REPORT_VALUES
from tierd.remote.transform.key_ring import KeyRing, RingTag

AUTHENTICATION: Final = "authentication"
_ALGORITHM: Final = "HMAC-SHA256"
_REMEDY: Final = (
    "find out who wrote it; an object of an earlier tierd is believed with --accept-unauthenticated of "
    "tierd rebuild-metadata and tierd repair-tier"
)


def with_tag(content: bytes, ring: KeyRing, binding: bytes) -> bytes:
    """Return the JSON object with its tag; unchanged where the ring is empty.

    Args:
        content: a JSON object, in UTF-8.
        ring: gives the key.
        binding: from ``tierd.remote.transform.binding``.
    """
    if ring.is_empty:
        return content
    fields = _fields_of(content)
    tag = ring.tag(_message(fields, binding))
    fields[AUTHENTICATION] = {"algorithm": _ALGORITHM, "key_id": tag.key_id, "tag": tag.tag}
    return (json.dumps(fields) + "\n").encode()


def require_tag(content: bytes, ring: KeyRing, binding: bytes, *, key: str) -> None:
    """Raise unless ``content`` carries the right tag, or the ring is empty.

    Args:
        content: of the object.
        ring: ring whose keys may have made the tag.
        binding: as for ``with_tag``.
        key: of the object, for errors.

    Raises:
        RemoteUnauthenticatedError: the tag is missing, is wrong, or is of a key that the ring lacks.
    """
    if ring.is_empty:
        return
    try:
        fields = _fields_of(content)
        tag = _tag_in(fields)
        is_right = tag is not None and ring.is_tag_of(_message(fields, binding), tag)
    except ValueError:
        tag, is_right = None, False
    if is_right:
        return
    problem = "it has no tag of the key ring" if tag is None else f"its tag under key {tag.key_id!r} does not fit"
    raise RemoteUnauthenticatedError(
        f"{key}: {problem}: nothing proves that a tierd with the key ring wrote it", remedy=_REMEDY
    )


def tagged_anew(content: bytes, ring: KeyRing, binding: bytes, *, key: str) -> bytes | None:
    """Return the object with a tag of the active key; None where it has that already.

    Raises:
        RemoteUnauthenticatedError: as ``require_tag``: an object without proof gets no tag.
    """
    require_tag(content, ring, binding, key=key)
    tag = _tag_in(_fields_of(content))
    return None if tag is None or tag.key_id == ring.active_id else with_tag(content, ring, binding)


def _fields_of(content: bytes) -> dict[str, object]:
    """Return the fields of a JSON object.

    Raises:
        ValueError: the content is no JSON object.
    """
    match parse_json(content, max_values=MAX_REPORT_VALUES):
        case dict() as fields:
            return fields
        case _:
            raise ValueError("not a JSON object")


def _tag_in(fields: Mapping[str, object]) -> RingTag | None:
    proof = fields.get(AUTHENTICATION)
    if not isinstance(proof, dict):
        return None
    key_id, tag = proof.get("key_id"), proof.get("tag")
    return RingTag(key_id, tag) if isinstance(key_id, str) and isinstance(tag, str) else None


def _message(fields: Mapping[str, object], binding: bytes) -> bytes:
    kept = {name: value for name, value in fields.items() if name != AUTHENTICATION}
    return binding + json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()
