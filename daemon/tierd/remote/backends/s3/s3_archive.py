"""Archived objects of S3: the storage classes whose objects are thawed before they can be read. Decisions only."""

from typing import Final

from tierd.remote.object_store import ArchiveState

_ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})  # objects of GLACIER_IR can be read at once
_WITH_ARCHIVE_TIERS: Final = "INTELLIGENT_TIERING"
_UNDER_WAY: Final = 'ongoing-request="true"'


def listed_state(storage_class: str) -> ArchiveState:
    """Return the state of an object in a listing, which has the class of the object and no more."""
    is_open = storage_class in _ARCHIVES or storage_class == _WITH_ARCHIVE_TIERS
    return ArchiveState.UNKNOWN if is_open else ArchiveState.READABLE


def described_state(storage_class: str, *, archive_status: str, restore: str) -> ArchiveState:
    """Return the state of an object.

    Args:
        storage_class: of the object.
        archive_status: archive tier of an object in the class INTELLIGENT_TIERING; empty for a readable tier.
        restore: header ``x-amz-restore`` of the answer; empty if nothing was asked to be thawed, or the time of the
            thawed copy is over.
    """
    if _UNDER_WAY in restore:
        return ArchiveState.THAWING
    if storage_class in _ARCHIVES:
        return ArchiveState.READABLE if restore else ArchiveState.ARCHIVED
    return ArchiveState.ARCHIVED if archive_status else ArchiveState.READABLE


def class_name(storage_class: str, *, archive_status: str) -> str:
    """Return the class of an object, with its archive tier."""
    return f"{storage_class} {archive_status}" if archive_status else storage_class
