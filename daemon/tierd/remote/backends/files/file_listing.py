"""Listings of a directory: objects in order of their keys, page by page, and temporary files of uploads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tierd.remote.backends.files.file_keys import UPLOADS_FOLDER, key_of_path, key_of_upload
from tierd.remote.backends.files.file_root import names_in
from tierd.remote.object_store import ObjectInfo, UnfinishedUpload


class _ListedName(NamedTuple):
    key: str  # of a file; for a folder the beginning of its keys
    path: Path
    is_folder: bool


def objects_below(root: Path, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
    """Yield objects whose key begins with ``prefix``, in order of key; skip folders before ``start_after``."""
    # The last entry is the next one: a stack of folders whose entries are in reverse order.
    pending = _entries(root, root, "", prefix, start_after)
    while pending:
        entry = pending.pop()
        if entry.is_folder:
            pending.extend(_entries(root, entry.path, entry.key, prefix, start_after))
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = entry.path.stat(
                follow_symlinks=False
            )  # size and time of any kind of file: cheaper than a check of the kind
            yield ObjectInfo(entry.key, status.st_size, None, status.st_mtime_ns // 1_000_000)


def uploads_below(root: Path, folder: Path, prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield each temporary file in ``folder`` of a key that begins with ``prefix``, in no order."""
    pending = [folder]
    while pending:
        directory = pending.pop()
        for entry in names_in(root, directory):
            path = directory / entry.name
            if entry.is_folder:
                pending.append(path)
                continue
            relative = path.relative_to(folder)
            key = key_of_upload(relative)
            if key is not None and key.startswith(prefix):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    initiated_ms = path.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
                    yield UnfinishedUpload(key, relative.parts[0].partition(".")[0], initiated_ms)


def _entries(root: Path, folder: Path, key: str, prefix: str, start_after: str) -> list[_ListedName]:
    """Return the names in ``folder`` that may be listed, the last one first; its keys begin with ``key``."""
    found = []
    for entry in names_in(root, folder):
        if not key and entry.name == UPLOADS_FOLDER:
            continue
        is_folder = entry.is_folder
        entry_key = key + key_of_path(PurePosixPath(entry.name)) + ("/" if is_folder else "")
        if is_folder:
            wanted = entry_key.startswith(prefix) or prefix.startswith(entry_key)
            wanted = wanted and (entry_key > start_after or start_after.startswith(entry_key))
        else:
            wanted = entry.is_file and entry_key.startswith(prefix) and entry_key > start_after
        if wanted:
            found.append(_ListedName(entry_key, folder / entry.name, is_folder))
    # The order of text is the order of its UTF-8 bytes; a folder stands where its keys do, behind its slash.
    return sorted(found, reverse=True)
