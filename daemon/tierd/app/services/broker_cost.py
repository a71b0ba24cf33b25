"""``tierd cost``: the use that was written down, priced. A daemon is not needed for it."""

from pathlib import Path

from tierd.clock import SystemClock
from tierd.config import RemoteSettings
from tierd.cost import FREE, HOUR_MS, CostReport, PriceList, UsageLedger, cost_report, load_prices
from tierd.errors import StateDirError

_DAY_MS = 24 * HOUR_MS


def broker_cost(state_dir: Path, settings: RemoteSettings, *, days: int, price_file: Path | None) -> CostReport:
    """Price what this broker used in the last ``days`` days. Blocking.

    Raises:
        ConfigError: the price file is wrong.
        StateDirError: the ledger cannot be read.
    """
    now_ms, prices = SystemClock().now_ms(), prices_of(settings, price_file)
    try:
        lines = usage_ledger(state_dir).read(from_ms=now_ms - days * _DAY_MS, to_ms=now_ms)
        return cost_report(lines, prices, to_ms=now_ms)
    except OSError as error:
        raise StateDirError(
            f"{error.filename or state_dir}: {error.strerror or error}",
            remedy="run it as the user of the daemon, and look at the disk of state_dir",
        ) from error


def prices_of(settings: RemoteSettings, price_file: Path | None) -> PriceList:
    """Return the prices of the file, or those that the kind of the store suggests. Blocking.

    Raises:
        ConfigError: the price file is wrong.
    """
    if price_file is not None:
        return load_prices(price_file)
    return FREE if settings.backend == "filesystem" else PriceList()


def usage_ledger(state_dir: Path) -> UsageLedger:
    """Return the ledger of use in a state directory."""
    return UsageLedger(state_dir / "usage")
