"""``meta.properties``: the cluster, node and directory id of a log dir (log-format 1.7)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from tierd.errors import SegmentChangedError
from tierd.log.files.disk import Disk, replace_file
from tierd.log.files.source import read_whole
from tierd.log.log_errors import CheckpointError
from tierd.model import uuid_from_text, uuid_to_text

META_PROPERTIES = "meta.properties"

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=: \t\f][ \t\f]*(.*)", re.DOTALL)
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: "\\" + char for char in "\\=:#!"}
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REMEDY = "compare it with the meta.properties of another log dir of the broker"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log dir; ``node_id`` is ``broker.id`` in the older form."""

    cluster_id: str
    node_id: int | None
    directory_id: UUID | None


def read_meta_properties(log_dir: Path) -> MetaProperties | None:
    """Read a log dir's identity; None when there is no such file. Blocking.

    Raises:
        CheckpointError: it cannot be understood.
        LogDirOfflineError: it cannot be read.
    """
    file = log_dir if log_dir.name == META_PROPERTIES else log_dir / META_PROPERTIES
    try:
        data = read_whole(file, limit_bytes=1 << 20, error=CheckpointError)
    except SegmentChangedError:
        return None
    return parse_meta_properties(data, name=str(file))


def parse_meta_properties(data: bytes, *, name: str) -> MetaProperties:
    """Parse Java properties, as far as this file uses them.

    Raises:
        CheckpointError: no cluster id, an invalid id, or an unknown version.
    """
    values = _properties(data.decode("latin-1"))  # the encoding of Java properties; everything else is escaped
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise CheckpointError(f"{name}: version {version!r} is not known, only 0 and 1", remedy=_REMEDY)
    cluster_id = values.get("cluster.id", "")
    if not cluster_id:
        raise CheckpointError(f"{name}: no cluster.id", remedy=_REMEDY)
    node = values.get("node.id", values.get("broker.id"))
    if node is not None and not re.fullmatch(r"-?[0-9]{1,10}", node):
        raise CheckpointError(f"{name}: node.id {node!r} is not a number", remedy=_REMEDY)
    directory = values.get("directory.id")
    try:
        directory_id = None if directory is None else uuid_from_text(directory)
    except ValueError as error:
        raise CheckpointError(f"{name}: directory.id {error}", remedy=_REMEDY) from error
    return MetaProperties(cluster_id, None if node is None else int(node), directory_id)


def encode_meta_properties(meta: MetaProperties, *, now_ms: int, version: int = 1) -> bytes:
    """Return the bytes that a broker would write for ``meta``; Java properties begin with a date.

    Args:
        meta: the identity.
        now_ms: for the date.
        version: 1, or 0 for the form that had ``broker.id`` and could leave it out.

    Raises:
        ValueError: another version, or no node id in version 1.
    """
    if version not in (0, 1) or (version == 1 and meta.node_id is None):
        raise ValueError(f"meta.properties version {version}, node id {meta.node_id}: not a form that there is")
    values = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_to_text(meta.directory_id)
    if meta.node_id is not None:
        values["node.id" if version else "broker.id"] = str(meta.node_id)
    values["version"] = str(version)
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = [f"{key}={_escape(value)}" for key, value in values.items()]
    return "\n".join(["#", f"#{stamp}", *lines, ""]).encode("ascii")


def write_meta_properties(disk: Disk, log_dir: Path, meta: MetaProperties, *, now_ms: int, version: int = 1) -> None:
    """Replace a log dir's identity, durably.

    Raises:
        ValueError: as ``encode_meta_properties``.
        OSError: the disk is full or failing; the old content is still there.
    """
    replace_file(disk, log_dir / META_PROPERTIES, encode_meta_properties(meta, now_ms=now_ms, version=version))


def _escape(value: str) -> str:
    """Escape a value (Java: Properties.saveConvert); of its blanks, those at its head need an escape."""
    escaped = "".join(_ESCAPED.get(char) or _escape_char(char) for char in value)
    blanks = len(escaped) - len(escaped.lstrip(" "))
    return "\\ " * blanks + escaped[blanks:]


def _escape_char(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))


def _properties(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in _LINE_END.split(text):
        stripped = line.lstrip(" \t\f")
        if not stripped or stripped[0] in "#!":
            continue
        if match := _PAIR.fullmatch(stripped):
            values[_unescape(match[1])] = _unescape(match[2])
    return values


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _UNESCAPED.get(m[1], m[1]), text)
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")  # Java escapes by halves
