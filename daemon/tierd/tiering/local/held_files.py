"""Holds of the files of one segment: links in a directory of tierd's, or open files. No limits, no bookkeeping.

::

    <stem>.log, .index, .timeindex, .txnindex, .snapshot     as far as the broker has them
    <stem>.leader-epoch-checkpoint                           as at hold time; last, which makes the hold whole

A hold takes no directory of its own: to make one, and to remove it, costs a file system many times what links cost.

Everything blocks. What fails half-way leaves nothing behind.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.files import make_private_directory, open_regular
from tierd.log import encode_lineage, read_lineage_file
from tierd.model import Lineage
from tierd.tiering.local.held_directories import UNFINISHED_SUFFIX, offsets_of, remove_links, stem_of
from tierd.tiering.local.held_segment import (
    DELETED_SUFFIX,
    LINEAGE_FILE,
    FileState,
    HeldSegment,
    HoldKind,
    SegmentFile,
)
from tierd.tiering.local.rolled import files_present, shared_files

_EVERY_SEGMENT_HAS = frozenset({SegmentFile.OFFSET_INDEX, SegmentFile.TIME_INDEX, SegmentFile.PRODUCER_SNAPSHOT})


def link_segment(
    unlinked: HeldSegment,
    stem: str,
    *,
    is_deleted: bool,
    neighbour: HeldSegment | None,
    require: Callable[[], None],
) -> HeldSegment:
    """Link every file of ``unlinked`` that there is under ``stem``; the hold is whole with its last link, or none.

    Args:
        unlinked: the segment as the broker has it; its files are found by linking them.
        stem: path that the suffixes of the links are appended to.
        is_deleted: the broker has marked the segment for deletion. Beside a log that is not marked, a marked file is of
            a segment that was replaced.
        neighbour: another linked segment; its lineage file is linked if it says the same, for making files costs.
        require: raises if what is linked by then is not what it should be.

    Raises:
        SegmentChangedError: the broker deleted or replaced the segment meanwhile.
        OSError: links cannot be made here, or not now.
    """
    suffixes = (DELETED_SUFFIX, "") if is_deleted else ("",)
    try:
        present = _link_all(unlinked, stem, suffixes)
        if SegmentFile.LOG not in present:
            raise _deleted_meanwhile(unlinked)
        require()
        _keep_lineage(unlinked.lineage, f"{stem}.{LINEAGE_FILE}", neighbour)
    except FileNotFoundError as error:
        remove_links(stem)
        raise _deleted_meanwhile(unlinked) from error
    except (OSError, SegmentChangedError):
        remove_links(stem)
        raise
    return replace(unlinked, kind=HoldKind.LINK, root=stem, renamed=frozenset(), present=present)


def open_segment(plain: HeldSegment, *, require: Callable[[], None]) -> HeldSegment:
    """Open every file of ``plain``; ``require`` raises if what is open by then is not what it should be.

    Raises:
        SegmentChangedError: the broker deleted or replaced the segment meanwhile.
        OSError: a file cannot be opened.
    """
    try:
        opened = _opened((file, plain.path(file)) for file in plain.present)
    except FileNotFoundError as error:
        raise _deleted_meanwhile(plain) from error
    try:
        require()
    except SegmentChangedError:
        _close(opened)
        raise
    return replace(plain, kind=HoldKind.DESCRIPTOR, descriptors=opened)


def completed(held: HeldSegment, directory: Path) -> HeldSegment:
    """Add the files that ``held`` lacks and its directory has by now, before the broker deletes those as well.

    The broker creates the next segment first and writes the producer snapshot of the roll a moment later. ``held``
    itself is returned when there is nothing to add, or a file cannot be added: the copy reports what is missing.
    """
    if held.present >= _EVERY_SEGMENT_HAS:
        return held
    there, renamed = files_present(directory, base_offset=held.base_offset, next_base_offset=held.next_base_offset)
    missing = (there & _EVERY_SEGMENT_HAS) - held.present
    where = replace(held, kind=HoldKind.NONE, root=str(directory), renamed=renamed, present=missing, descriptors=())
    if held.kind is HoldKind.LINK:
        return _with_links(held, where)
    try:
        opened = _opened((file, where.path(file)) for file in missing)
    except OSError:
        return held
    return replace(held, present=held.present | missing, descriptors=(*held.descriptors, *opened))


def _with_links(held: HeldSegment, where: HeldSegment) -> HeldSegment:
    added = set()
    with contextlib.suppress(OSError):
        for file in where.present:
            if _is_linked(where, file, held.root, ("", DELETED_SUFFIX)):
                added.add(file)
    return replace(held, present=shared_files(held.present | added)) if added else held


def recovered(path: Path) -> HeldSegment:
    """Describe the linked segment that an earlier process left; ``path`` is its stem, or its directory.

    Raises:
        ValueError: the name is not one of ours.
        OSError: the files cannot be examined.
        TierError: the log or the lineage of the segment is missing or damaged.
    """
    base, next_base = offsets_of(path.name)
    if path.is_dir():
        return HeldSegment(
            base_offset=base,
            next_base_offset=next_base,
            kind=HoldKind.NONE,
            root=str(path),
            log_file=FileState.of(path / SegmentFile.LOG.name_for(base_offset=base, next_base_offset=next_base)),
            lineage=read_lineage_file(path / LINEAGE_FILE),
            present=files_present(path, base_offset=base, next_base_offset=next_base)[0],
        )
    return HeldSegment(
        base_offset=base,
        next_base_offset=next_base,
        kind=HoldKind.LINK,
        root=str(path),
        log_file=FileState.of(Path(f"{path}.{SegmentFile.LOG.value}")),
        lineage=read_lineage_file(Path(f"{path}.{LINEAGE_FILE}")),
        present=shared_files(file for file in SegmentFile if os.path.exists(f"{path}.{file.value}")),  # noqa: PTH110
    )


def without_directory(held: HeldSegment) -> HeldSegment:
    """Link a segment that has a directory of an earlier version under its stem, and remove the directory.

    Ended anywhere, directory or stem has the whole segment.

    Raises:
        SegmentChangedError: a person has removed files meanwhile.
        OSError: links cannot be made now; the directory stays.
    """
    directory = Path(held.root)
    linked = link_segment(
        held, str(directory.with_name(stem_of(held))), is_deleted=False, neighbour=None, require=lambda: None
    )
    with contextlib.suppress(OSError):
        shutil.rmtree(directory.rename(directory.with_name(directory.name + UNFINISHED_SUFFIX)))
    return linked


def discard(held: HeldSegment) -> None:
    """Release the files: close the descriptors, or remove the links."""
    _close(held.descriptors)
    if held.kind is HoldKind.LINK:
        remove_links(held.root)


def _link_all(segment: HeldSegment, stem: str, suffixes: Collection[str]) -> frozenset[SegmentFile]:
    """Link the files of ``segment``; what is in the way, or lacks, is put right once: old links, the folder."""
    try:
        present = _linked(segment, stem, suffixes)
    except FileExistsError:  # links of an attempt that did not end
        remove_links(stem)
        return _linked(segment, stem, suffixes)
    if SegmentFile.LOG in present or (folder := Path(stem).parent).is_dir():
        return present
    make_private_directory(folder)
    return _linked(segment, stem, suffixes)


def _linked(segment: HeldSegment, stem: str, suffixes: Collection[str]) -> frozenset[SegmentFile]:
    return shared_files(file for file in SegmentFile if _is_linked(segment, file, stem, suffixes))


def _is_linked(segment: HeldSegment, file: SegmentFile, stem: str, suffixes: Collection[str]) -> bool:
    """Link a file of ``segment`` by the first suffix that its name has; return False where there is no such file."""
    name = file.name_for(base_offset=segment.base_offset, next_base_offset=segment.next_base_offset)
    for suffix in suffixes:
        try:
            os.link(f"{segment.root}/{name}{suffix}", f"{stem}.{file.value}", follow_symlinks=False)
        except FileNotFoundError:
            continue
        return True
    return False


def _deleted_meanwhile(segment: HeldSegment) -> SegmentChangedError:
    return SegmentChangedError(f"{segment.root}: segment {segment.base_offset} was deleted before it could be held")


def _opened(files: Iterable[tuple[SegmentFile, Path | None]]) -> tuple[tuple[SegmentFile, int], ...]:
    opened: list[tuple[SegmentFile, int]] = []
    try:
        for file, source in files:
            assert source is not None, "present files have a path"
            opened.append((file, open_regular(source)))
    except OSError:
        _close(opened)
        raise
    return tuple(opened)


def _close(descriptors: Iterable[tuple[SegmentFile, int]]) -> None:
    for _, descriptor in descriptors:
        os.close(descriptor)


def _keep_lineage(lineage: Lineage, file: str, neighbour: HeldSegment | None) -> None:
    if neighbour is not None and neighbour.kind is HoldKind.LINK and neighbour.lineage == lineage:
        with contextlib.suppress(OSError):
            os.link(f"{neighbour.root}.{LINEAGE_FILE}", file)
            return
    unfinished = f"{file}{UNFINISHED_SUFFIX}"
    with os.fdopen(open_regular(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as written:
        written.write(encode_lineage(lineage))
    Path(unfinished).rename(file)
