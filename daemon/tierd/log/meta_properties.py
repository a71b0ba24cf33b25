"""``meta.properties``: which cluster, node and directory a log dir belongs to (log-format 1.7)."""

import re
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tierd.errors import CheckpointError, SegmentChangedError
from tierd.log.files import read_whole
from tierd.model import uuid_from_text

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]\s*(.*)")
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
    file = log_dir if log_dir.name == "meta.properties" else log_dir / "meta.properties"
    try:
        data = read_whole(file, limit_bytes=1 << 20, error=CheckpointError)
    except SegmentChangedError:
        return None
    return parse_meta_properties(data, name=str(file))


def parse_meta_properties(data: bytes, *, name: str) -> MetaProperties:
    """Parse Java properties, as far as this file uses them.

    Raises:
        CheckpointError: no cluster id, an id that is none, or an unknown version.
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


def _properties(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        if match := _PAIR.fullmatch(stripped):
            values[_unescape(match[1])] = _unescape(match[2])
    return values


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else m[1], text)
