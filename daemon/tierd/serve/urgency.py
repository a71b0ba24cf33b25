"""The order of partitions for people: partitions that need a person come first."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

_T = TypeVar("_T")

_URGENCY: Final = ("quarantined", "waiting", "paused", "loading", "copying")


def by_urgency(partitions: Iterable[_T], *, state_of: Callable[[_T], str]) -> list[_T]:
    """Return ``partitions`` by the urgency of their states; partitions of equal urgency keep their order."""
    return sorted(partitions, key=lambda partition: _rank(state_of(partition)))


def cause_and_remedy(last_error: str | None, reason: str | None, remedy: str) -> str:
    """Return why a partition is in its state, in a line: the error, or else the reason, and the next step."""
    return "; ".join(filter(None, (last_error or reason, remedy)))


def _rank(state: str) -> int:
    return _URGENCY.index(state) if state in _URGENCY else len(_URGENCY)
