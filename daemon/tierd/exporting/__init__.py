"""Topics of the tier as files (docs/python.md). The room is imported without pyarrow."""

from importlib import import_module
from typing import TYPE_CHECKING

from tierd.exporting.export_request import ExportFolder, ExportFormat, ExportLimits, ExportRequest

if TYPE_CHECKING:
    from tierd.exporting.topic_export import ExportedRange, ExportJob, ExportProgress, export_job

__all__ = [
    "ExportFolder",
    "ExportFormat",
    "ExportJob",
    "ExportLimits",
    "ExportProgress",
    "ExportRequest",
    "ExportedRange",
    "export_job",
]

_ON_DEMAND = ("ExportJob", "ExportProgress", "ExportedRange", "export_job")


def __getattr__(name: str) -> object:
    """Import a name of ``_ON_DEMAND``, which needs pyarrow, when it is first asked for (PEP 562)."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tierd.exporting.topic_export"), name)
