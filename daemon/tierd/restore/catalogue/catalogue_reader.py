"""Reads of the catalogue for people and planners: the last positions of every node at or before a moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.remote import CataloguePositionsKey
from tierd.restore.catalogue.catalogue_objects import Positions
from tierd.restore.catalogue.catalogue_storage import CatalogueStorage

_TRIES: Final = 5  # objects of one node, from the newest back, until one can be read


@dataclass(frozen=True, slots=True)
class FoundPositions:
    """Positions objects of a moment.

    Attributes:
        positions: one object a node.
        problems: objects that could not be used, each with the reason; an earlier one stands in where there is one.
    """

    positions: tuple[Positions, ...]
    problems: tuple[str, ...]


async def read_positions_at(storage: CatalogueStorage, at_ms: int | None) -> FoundPositions:
    """Return the last positions of each node at or before ``at_ms``; None for the newest.

    A damaged object, or one that the key ring does not prove, is passed over for the object before it.

    Raises:
        RemoteStorageError: the store failed, or the objects are of a later tierd.
    """
    found: list[Positions] = []
    problems: list[str] = []
    for candidates in latest_by_node(await storage.list_positions(), at_ms):
        for key in candidates[:_TRIES]:
            try:
                found.append(await storage.read_positions(key))
                break
            except RemoteResourceNotFoundError:
                continue  # it was thinned out after it was listed
            except RemoteIntegrityError as error:
                problems.append(str(error))
    return FoundPositions(tuple(found), tuple(problems))


def latest_by_node(keys: Iterable[CataloguePositionsKey], at_ms: int | None) -> list[list[CataloguePositionsKey]]:
    """Return for each node its objects at or before ``at_ms``, the newest first; nodes without one are left out."""
    by_node: dict[int, list[CataloguePositionsKey]] = {}
    for key in sorted(keys, reverse=True):
        if at_ms is None or key.taken_ms <= at_ms:
            by_node.setdefault(key.node_id, []).append(key)
    return [by_node[node_id] for node_id in sorted(by_node)]
