"""PriceList: prices of a store, read from a YAML file (``cost.price_file``)."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tierd.config import load_side_file
from tierd.cost.billed_requests import RequestClass

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
