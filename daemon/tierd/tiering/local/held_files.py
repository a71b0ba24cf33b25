"""Holds of the files of one segment: links in a directory of tierd's, or open files. No limits, no bookkeeping.

::

    <segment dir>/<base>.log, .index, .timeindex, .txnindex, <next base>.snapshot
                  leader-epoch-checkpoint     (as at hold time)

Everything blocks. What fails half-way leaves nothing behind.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.files import PRIVATE_DIRECTORY, make_private_directory, open_regular
from tierd.log import encode_lineage, read_lineage
from tierd.model import Lineage
from tierd.tiering.local.held_directories import UNFINISHED_SUFFIX
from tierd.tiering.local.held_segment import (
    DELETED_SUFFIX,
    LINEAGE_FILE,
    FileState,
    HeldSegment,
    HoldKind,
    SegmentFile,
)
from tierd.tiering.local.rolled import files_present

_EVERY_SEGMENT_HAS = frozenset({SegmentFile.OFFSET_INDEX, SegmentFile.TIME_INDEX, SegmentFile.PRODUCER_SNAPSHOT})


def segment_dir_name(segment: HeldSegment) -> str:
    """Return the name of the directory of a linked segment: its base offset and its exclusive end."""
    return f"{segment.base_offset:020d}-{segment.next_base_offset}"


def link_segment(
    plain: HeldSegment, target: Path, *, neighbour: HeldSegment | None, require: Callable[[], None]
) -> HeldSegment:
    """Link every file of ``plain`` into the directory ``target``, which appears whole or not at all.

    Args:
        plain: the segment as the broker has it.
        target: made anew; what was there before goes at the very end.
        neighbour: another linked segment; its lineage file is linked if it says the same, for making files costs.
        require: raises if what is linked by then is not what it should be.

    Raises:
        SegmentChangedError: the broker deleted or replaced the segment meanwhile.
        OSError: links cannot be made here, or not now.
    """
    unfinished = target.with_name(target.name + UNFINISHED_SUFFIX)
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private_directory(unfinished.parent)
    unfinished.mkdir(mode=PRIVATE_DIRECTORY)
    try:
        for source in _sources(plain):
            os.link(source, unfinished / source.name.removesuffix(DELETED_SUFFIX), follow_symlinks=False)
        _keep_lineage(plain.lineage, unfinished / LINEAGE_FILE, neighbour)
        require()
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    except FileNotFoundError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise SegmentChangedError(f"{plain.log}: deleted before it could be held") from error
    except (OSError, SegmentChangedError):
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return replace(plain, kind=HoldKind.LINK, root=str(target), renamed=frozenset())


def open_segment(plain: HeldSegment, *, require: Callable[[], None]) -> HeldSegment:
    """Open every file of ``plain``; ``require`` raises if what is open by then is not what it should be.

    Raises:
        SegmentChangedError: the broker deleted or replaced the segment meanwhile.
        OSError: a file cannot be opened.
    """
    try:
        opened = _opened((file, plain.path(file)) for file in plain.present)
    except FileNotFoundError as error:
        raise SegmentChangedError(f"{plain.log}: deleted before it could be held") from error
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
    where = replace(held, root=str(directory), renamed=renamed, present=missing, descriptors=())
    descriptors: tuple[tuple[SegmentFile, int], ...] = ()
    try:
        if held.kind is HoldKind.LINK:
            for source in _sources(where):
                os.link(source, Path(held.root, source.name.removesuffix(DELETED_SUFFIX)), follow_symlinks=False)
        else:
            descriptors = _opened((file, where.path(file)) for file in missing)
    except OSError:
        return held
    return replace(held, present=held.present | missing, descriptors=(*held.descriptors, *descriptors))


def recovered(path: Path) -> HeldSegment:
    """Describe the linked segment that an earlier process left in ``path``.

    Raises:
        ValueError: the name of the directory is not one of ours.
        OSError: the directory cannot be read.
        TierError: the log or the lineage of the segment is missing or damaged.
    """
    base, next_base = (int(part) for part in path.name.split("-"))
    return HeldSegment(
        base_offset=base,
        next_base_offset=next_base,
        kind=HoldKind.LINK,
        root=str(path),
        log_file=FileState.of(path / SegmentFile.LOG.name_for(base_offset=base, next_base_offset=next_base)),
        lineage=read_lineage(path / LINEAGE_FILE),
        present=files_present(path, base_offset=base, next_base_offset=next_base)[0],
    )


def discard(held: HeldSegment) -> None:
    """Release the files: close the descriptors, or remove the links."""
    _close(held.descriptors)
    if held.kind is HoldKind.LINK:
        shutil.rmtree(held.root, ignore_errors=True)


def _sources(plain: HeldSegment) -> list[Path]:
    return [path for path in map(plain.path, plain.present) if path is not None]


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


def _keep_lineage(lineage: Lineage, file: Path, neighbour: HeldSegment | None) -> None:
    if neighbour is not None and neighbour.kind is HoldKind.LINK and neighbour.lineage == lineage:
        with contextlib.suppress(OSError):
            os.link(Path(neighbour.root, LINEAGE_FILE), file)
            return
    with os.fdopen(open_regular(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as written:
        written.write(encode_lineage(lineage))
