"""PriceList: prices of a store, from a YAML file (``cost.price_file``). ThawOffer: list prices of AWS in us-east-1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tierd.config import load_side_file
from tierd.cost.billed_requests import RequestClass

GIB: Final = 1 << 30

Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class _Prices(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RequestPrices(_Prices):
    """Prices per 1,000 requests of a class."""

    put: Price = 0.005
    list: Price = 0.005
    get: Price = 0.0004
    delete: Price = 0.0


class TrafficPrices(_Prices):
    """Prices per GiB moved: ``upload`` into the store, ``download`` out of it, retrieval fees and network together."""

    upload: Price = 0.0
    download: Price = 0.0


class PriceList(_Prices):
    """Prices in one currency; the defaults are list prices of S3 Standard in us-east-1, read within its region.

    ::

        currency: USD
        storage_per_gib_month: 0.023
        per_1000_requests: {put: 0.005, list: 0.005, get: 0.0004, delete: 0}
        per_gib: {upload: 0, download: 0}
    """

    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    storage_per_gib_month: Price = 0.023
    per_1000_requests: RequestPrices = RequestPrices()
    per_gib: TrafficPrices = TrafficPrices()

    def of_requests(self, kind: RequestClass, count: float) -> float:
        """Return the price of ``count`` requests of a class."""
        return float(getattr(self.per_1000_requests, kind.value)) * count / 1000


FREE = PriceList(
    storage_per_gib_month=0, per_1000_requests=RequestPrices(put=0, list=0, get=0, delete=0), per_gib=TrafficPrices()
)
"""Prices of a directory: 0, since tierd cannot know any."""


def load_prices(path: Path) -> PriceList:
    """Read a price file. Blocking.

    Raises:
        ConfigError: it cannot be read, or anything in it is wrong; names every fault with its place.
    """
    return load_side_file(path, PriceList)


class ThawOffer(NamedTuple):
    """One way to thaw objects of a storage class; prices are in USD."""

    tier: str
    hours: str
    per_gib: float
    per_1000_objects: float

    def cost(self, *, objects: int, size_bytes: int) -> float:
        """Return the price in USD; storing the thawed copies is not in it."""
        return objects / 1000 * self.per_1000_objects + size_bytes / GIB * self.per_gib


_OFFERS: Final[Mapping[str, tuple[ThawOffer, ...]]] = {
    "GLACIER": (ThawOffer("Standard", "3 to 5", 0.01, 0.05), ThawOffer("Bulk", "5 to 12", 0, 0)),
    "DEEP_ARCHIVE": (ThawOffer("Standard", "12", 0.02, 0.1), ThawOffer("Bulk", "48", 0.0025, 0.025)),
    "INTELLIGENT_TIERING ARCHIVE_ACCESS": (ThawOffer("Standard", "3 to 5", 0, 0), ThawOffer("Bulk", "5 to 12", 0, 0)),
    "INTELLIGENT_TIERING DEEP_ARCHIVE_ACCESS": (ThawOffer("Standard", "12", 0, 0), ThawOffer("Bulk", "48", 0, 0)),
}


def thaw_offers(storage_class: str) -> tuple[ThawOffer, ...]:
    """Return the ways to thaw objects of a storage class, the faster first; none where they are not known."""
    return _OFFERS.get(storage_class, ())
