"""Locations of settings, and rules that bind several of them. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

Location = tuple[str | int, ...]
"""Keys and list indexes from the root of the file to a value."""


class PlacedFaultsError(ValueError):
    """Faults of a section, each with its location relative to that section."""

    def __init__(self, faults: Sequence[tuple[Location, str]]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = tuple(faults)


def require_understood(parts: Mapping[Location, Callable[[], object]]) -> None:
    """Require that every text is understood.

    Args:
        parts: location of each text, and the call that parses it and raises ``ValueError``.

    Raises:
        PlacedFaultsError: some are not.
    """
    faults: list[tuple[Location, str]] = []
    for location, parse in parts.items():
        try:
            parse()
        except ValueError as error:
            faults.append((location, str(error)))
    if faults:
        raise PlacedFaultsError(faults)


def require_none(faults: Iterable[tuple[Location, str]]) -> None:
    """Require that there are no faults.

    Raises:
        PlacedFaultsError: there are some.
    """
    if found := list(faults):
        raise PlacedFaultsError(found)


def dotted(location: Location) -> str:
    """Return the usual text of a location: ``log_dirs[0].path``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def path_faults(log_dirs: Mapping[Location, Path], own: Mapping[Location, Path]) -> list[tuple[Location, str]]:
    """Return the faults of log dirs that overlap, at the later one, and of tierd's own paths in a log dir."""
    faults: list[tuple[Location, str]] = []
    seen: list[Path] = []
    for location, path in log_dirs.items():
        overlapping = next((other for other in seen if path.is_relative_to(other) or other.is_relative_to(path)), None)
        if overlapping == path:
            faults.append((location, f"{path} is listed twice: remove one"))
        elif overlapping:
            faults.append((location, f"{path} and {overlapping} are nested: list directories of partitions only"))
        seen.append(path)
    for location, path in own.items():
        log_dir = next((other for other in seen if path.is_relative_to(other)), None)
        if log_dir:
            message = (
                f"{path} is inside the log dir {log_dir}, where tierd writes nothing: choose a directory beside it"
            )
            faults.append((location, message))
    return faults
