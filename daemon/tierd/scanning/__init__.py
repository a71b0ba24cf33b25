"""Records of the tier in Python, as batches of Arrow (docs/python.md). The room is imported without pyarrow."""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.scanning.opening import async_reader, reader, require_pyarrow
from tierd.scanning.positions import EARLIEST, LATEST, AtTime, OnePosition

if TYPE_CHECKING:
    from tierd.scanning.row_layout import RowLayout
    from tierd.scanning.scan_plan import ScanPlan, ScanRange, ScanRequest
    from tierd.scanning.tier_scanner import TierScanner

__all__ = [
    "EARLIEST",
    "LATEST",
    "AtTime",
    "OnePosition",
    "RowLayout",
    "ScanPlan",
    "ScanRange",
    "ScanRequest",
    "TierScanner",
    "async_reader",
    "reader",
    "require_pyarrow",
]

_ON_DEMAND = {
    "RowLayout": "tierd.scanning.row_layout",
    "ScanPlan": "tierd.scanning.scan_plan",
    "ScanRange": "tierd.scanning.scan_plan",
    "ScanRequest": "tierd.scanning.scan_plan",
    "TierScanner": "tierd.scanning.tier_scanner",
}


def __getattr__(name: str) -> object:
    """Import a name of ``_ON_DEMAND``, which needs pyarrow, when it is first asked for (PEP 562)."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
