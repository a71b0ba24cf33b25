"""Manifest of a restored directory: the report of the restore, and size and digest of every file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tierd.json_parsing import parse_json
from tierd.kernels import crc32c
from tierd.restore.log_dir.segment_staging import StagedSegment
from tierd.restore.log_dir.staged_files import write_durably

MANIFEST: Final = "manifest.json"


def write_manifest(path: Path, directory: Path, segments: Sequence[StagedSegment], report: Mapping[str, Any]) -> None:
    """Write the report of a staged directory with size and CRC-32C of each of its files, as JSON. Blocking.

    Raises:
        OSError: the disk is full or failing.
    """
    known = {segment.log.name: (segment.size_bytes, segment.crc32c) for segment in segments}
    files = {}
    for file in sorted(directory.iterdir()):
        size_bytes, digest = known.get(file.name) or _digest(file)
        files[file.name] = {"size_bytes": size_bytes, "crc32c": f"{digest:08x}"}
    write_durably(path, json.dumps({**report, "files": files}, indent=1).encode() + b"\n")


def has_all_logs(directory: Path, manifest: Path) -> bool:
    """Return True if each log of the manifest that has batches is in the directory, with its size. Blocking.

    The last one is the active segment, which may have grown. Logs that were added since do not matter. A manifest that
    cannot be understood proves nothing.

    Raises:
        OSError: the directory or the manifest cannot be read.
    """
    try:
        sizes = _log_sizes(manifest)
        active = max(sizes, default="")
        found = {name: (directory / name).stat().st_size for name, size in sizes.items() if size}
        return all(sizes[name] == size or (name == active and sizes[name] < size) for name, size in found.items())
    except FileNotFoundError:
        return False
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def has_only_logs(directory: Path, manifest: Path) -> bool:
    """Return True if the directory has the logs of the manifest, and a broker has written nothing since. Blocking.

    Raises:
        OSError: the directory or the manifest cannot be read.
    """
    if not has_all_logs(directory, manifest):
        return False
    sizes = _log_sizes(manifest)
    return all(log.stat().st_size == sizes.get(log.name, 0) for log in directory.glob("*.log"))


def _log_sizes(manifest: Path) -> dict[str, int]:
    content: Any = parse_json(manifest.read_bytes())
    return {name: each["size_bytes"] for name, each in content["files"].items() if name.endswith(".log")}


def _digest(file: Path) -> tuple[int, int]:
    content = file.read_bytes()
    return len(content), crc32c(content)
