"""Thinning of positions objects: which of them go, decided from their keys alone (DESIGN 13).

::

    age      up to a day   up to 30 days         up to keep            older
    stay     all           the last of an hour   the last of a day     none

All of the last day stay, then the last one of each hour, after a month the last one of each day (both of UTC), and
none that is older than ``keep``. The newest object of a node always stays, and so does the newest that is older than
``keep``: for every moment within ``keep`` some object says what was then.
"""

from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Final

from tierd.remote import CataloguePositionsKey

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MONTH_MS: Final = 30 * _DAY_MS


def superfluous(
    found: Iterable[CataloguePositionsKey], *, now_ms: int, keep_ms: int, node_id: int
) -> list[CataloguePositionsKey]:
    """Return the positions objects that go, the oldest first.

    Args:
        found: of all nodes, in any order.
        now_ms: the wall clock.
        keep_ms: age up to which objects stay.
        node_id: node that decides. It thins its own objects, and those of nodes that have written none for a day.
    """
    gone: list[CataloguePositionsKey] = []
    for node, objects in groupby(sorted(found, key=lambda each: (each.node_id, each.taken_ms)), _node_of):
        ascending = list(objects)
        if node == node_id or ascending[-1].taken_ms < now_ms - _DAY_MS:
            gone += _superfluous_of_node(ascending, now_ms=now_ms, keep_ms=keep_ms)
    return sorted(gone)


def _superfluous_of_node(
    ascending: list[CataloguePositionsKey], *, now_ms: int, keep_ms: int
) -> Iterable[CataloguePositionsKey]:
    for each, following in pairwise(ascending):
        is_too_old = following.taken_ms <= now_ms - keep_ms
        period_ms = _period_ms(now_ms - each.taken_ms)
        if is_too_old or (period_ms and each.taken_ms // period_ms == following.taken_ms // period_ms):
            yield each


def _period_ms(age_ms: int) -> int:
    """Return the length of the periods of which one object each stays, at this age; 0 where all stay."""
    if age_ms <= _DAY_MS:
        return 0
    return _HOUR_MS if age_ms <= _MONTH_MS else _DAY_MS


def _node_of(key: CataloguePositionsKey) -> int:
    return key.node_id
