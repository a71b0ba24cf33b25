"""Object keys as paths below a directory, and back: one path for each key, and none outside of the directory.

Each part of a key becomes a file name. Bytes that a name cannot carry safely, a leading dot included, are written as
``%XX``; an empty part is a lone ``%``. The keys that tierd makes need no such change.
"""

from pathlib import Path, PurePosixPath
from urllib.parse import quote_from_bytes, unquote_to_bytes
from uuid import UUID

UPLOADS_FOLDER = ".tierd-uploads"
"""Folder of objects that have not appeared yet. No key has a path in it, because a leading dot is escaped."""

_KEPT = " !\"#$&'()*+,-.:;<=>?@[]^_`{|}~"
_PIECE_LENGTH = 200  # file names end at 255 bytes


def path_of_key(key: str) -> PurePosixPath:
    """Return the relative path of the object ``key``."""
    return PurePosixPath(*map(_name_of_part, key.split("/")))


def key_of_path(path: PurePosixPath | Path) -> str:
    """Return the key of the object at the relative ``path``."""
    return "/".join(
        "" if name == "%" else unquote_to_bytes(name).decode("utf-8", "surrogateescape") for name in path.parts
    )


def path_of_upload(upload_id: UUID, key: str) -> PurePosixPath:
    """Return the path of an upload, relative to the uploads folder; it holds the key, for the time after a crash."""
    text = f"{upload_id.hex}.{quote_from_bytes(key.encode('utf-8', 'surrogateescape'), safe='')}"
    return PurePosixPath(*(text[at : at + _PIECE_LENGTH] for at in range(0, len(text), _PIECE_LENGTH)))


def key_of_upload(path: PurePosixPath | Path) -> str | None:
    """Return the key of an upload at the relative ``path``; None when the file is no upload."""
    upload_id, dot, quoted = "".join(path.parts).partition(".")
    try:
        UUID(hex=upload_id)
    except ValueError:
        return None
    return unquote_to_bytes(quoted).decode("utf-8", "surrogateescape") if dot else None


def _name_of_part(part: str) -> str:
    if not part:
        return "%"
    name = quote_from_bytes(part.encode("utf-8", "surrogateescape"), safe=_KEPT)
    return "%2E" + name[1:] if name.startswith(".") else name
