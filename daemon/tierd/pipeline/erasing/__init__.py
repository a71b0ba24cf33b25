"""Key-level erasure: requests, which runs apply, and the proof that nothing of the keys is left in the tier."""

from tierd.pipeline.erasing.keeper import DiskCaches, ErasureKeeper, KeeperParts
from tierd.pipeline.erasing.outlook import SearchWork, left_segments, outlook_of, search_work
from tierd.pipeline.erasing.reports import ErasureReports, restore_requests
from tierd.pipeline.erasing.request import ErasePhase, EraseRequest, LeftSegment, new_request
from tierd.pipeline.erasing.requests import EraseRequests
from tierd.pipeline.erasing.versions import OldVersions

__all__ = [
    "DiskCaches",
    "ErasePhase",
    "EraseRequest",
    "EraseRequests",
    "ErasureKeeper",
    "ErasureReports",
    "KeeperParts",
    "LeftSegment",
    "OldVersions",
    "SearchWork",
    "left_segments",
    "new_request",
    "outlook_of",
    "restore_requests",
    "search_work",
]
