"""Thawing of archived objects: how long it takes and what it costs, by AWS's list prices in us-east-1."""

from collections.abc import Mapping
from typing import Final, NamedTuple

_GIB: Final = 1 << 30


class ThawOffer(NamedTuple):
    """One way to thaw objects of a storage class; prices are in USD."""

    tier: str
    hours: str
    per_gib: float
    per_1000_objects: float

    def cost(self, *, objects: int, size_bytes: int) -> float:
        """Return the price in USD; storing the thawed copies is not in it."""
        return objects / 1000 * self.per_1000_objects + size_bytes / _GIB * self.per_gib


_OFFERS: Final[Mapping[str, tuple[ThawOffer, ...]]] = {
    "GLACIER": (ThawOffer("Standard", "3 to 5", 0.01, 0.05), ThawOffer("Bulk", "5 to 12", 0, 0)),
    "DEEP_ARCHIVE": (ThawOffer("Standard", "12", 0.02, 0.1), ThawOffer("Bulk", "48", 0.0025, 0.025)),
    "INTELLIGENT_TIERING ARCHIVE_ACCESS": (ThawOffer("Standard", "3 to 5", 0, 0), ThawOffer("Bulk", "5 to 12", 0, 0)),
    "INTELLIGENT_TIERING DEEP_ARCHIVE_ACCESS": (ThawOffer("Standard", "12", 0, 0), ThawOffer("Bulk", "48", 0, 0)),
}


def thaw_offers(storage_class: str) -> tuple[ThawOffer, ...]:
    """Return the ways to thaw objects of a storage class, the faster first; none where they are not known."""
    return _OFFERS.get(storage_class, ())
