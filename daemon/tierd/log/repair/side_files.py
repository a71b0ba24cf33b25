"""Side files: repair and truncation keep in them the bytes that they take out of a log.

Side files lie in the partition directory, because a foreign directory in a log dir would stop a broker::

    tierd-kept.<time>.<name>.whole              the file as it was
    tierd-kept.<time>.<name>.from-<position>    its bytes from that position on

A broker opens only files whose names begin with a number or end as its own files do. So the names of side files begin
and end with words of tierd. Side files are removed with the partition.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

PREFIX = "tierd-kept."
_FORM = re.compile(r"tierd-kept\.(?P<stamp>\d{8}T\d{6}\.\d{3}Z)\.(?P<name>.+)\.(?P<part>whole|from-\d+)")


def is_side_file(name: str) -> bool:
    """Return True if ``name`` is that of a side file of repair or truncation."""
    return _FORM.fullmatch(name) is not None


def original_name(name: str) -> str:
    """Return the name of the file from which a side file was taken; any other name unchanged."""
    match = _FORM.fullmatch(name)
    return match["name"] if match else name


def describe_side_file(name: str) -> str:
    """Return a sentence for people about the content of a side file."""
    match = _FORM.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no side file")
    part = "" if match["part"] == "whole" else f" from position {match['part'].removeprefix('from-')} on"
    return f"{match['name']}{part}, kept by tierd at {match['stamp']}; a broker ignores it, and so may you"


def new_stamp(now_ms: int, names: Iterable[str]) -> str:
    """Return a time stamp that no side file in the directory has; ``names`` are all names in the directory."""
    taken = {match["stamp"] for name in names if (match := _FORM.fullmatch(name))}
    while (stamp := _stamp(now_ms)) in taken:
        now_ms += 1
    return stamp


def side_file_name(stamp: str, name: str, position: int | None = None) -> str:
    """Return the name of the side file for the whole file ``name``, or for its bytes from ``position`` on."""
    return f"{PREFIX}{stamp}.{name}." + ("whole" if position is None else f"from-{position}")


def _stamp(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z"
