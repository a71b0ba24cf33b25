"""Key-level erasure: requests, which runs apply, and the proof that nothing of the keys is left in the tier."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.pipeline.erasing.erase_request import EraseRequest, LeftSegment, new_request
    from tierd.pipeline.erasing.erase_requests import EraseRequests
    from tierd.pipeline.erasing.keeper import ErasureKeeper, KeeperParts
    from tierd.pipeline.erasing.outlook import search_work
    from tierd.pipeline.erasing.reports import ErasureReports, restore_requests
    from tierd.pipeline.erasing.versions import OldVersions
else:
    __getattr__ = exports_on_demand(__name__)

__all__ = [
    "EraseRequest",
    "EraseRequests",
    "ErasureKeeper",
    "ErasureReports",
    "KeeperParts",
    "LeftSegment",
    "OldVersions",
    "new_request",
    "restore_requests",
    "search_work",
]
