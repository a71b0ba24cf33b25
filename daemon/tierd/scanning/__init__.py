"""Records of the tier in Python, as batches of Arrow (docs/python.md). The room is imported without pyarrow."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.scanning.opening import async_reader, reader, require_pyarrow
    from tierd.scanning.positions import EARLIEST, LATEST, AtTime, OnePosition
    from tierd.scanning.row_layout import RowLayout
    from tierd.scanning.scan_plan import ScanPlan, ScanRange, ScanRequest
    from tierd.scanning.tier_scanner import TierScanner
else:
    __getattr__ = exports_on_demand(__name__)

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
