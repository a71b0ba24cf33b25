"""The order of partitions for people: partitions that need a person come first."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

_T = TypeVar("_T")

_URGENCY: Final = ("quarantined", "waiting", "paused", "loading", "copying")


def by_urgency(partitions: Iterable[_T], *, state_of: Callable[[_T], str]) -> list[_T]:
    """Return ``partitions`` by the urgency of their states; partitions of equal urgency keep their order."""
    return sorted(partitions, key=lambda partition: _rank(state_of(partition)))


def _rank(state: str) -> int:
    return _URGENCY.index(state) if state in _URGENCY else len(_URGENCY)
