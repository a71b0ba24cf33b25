"""Topics of the tier as files (docs/python.md). The room is imported without pyarrow."""

from typing import TYPE_CHECKING

from tierd.on_demand import exports_on_demand

if TYPE_CHECKING:
    from tierd.exporting.export_request import ExportFolder, ExportFormat, ExportLimits, ExportRequest
    from tierd.exporting.topic_export import ExportedRange, ExportJob, ExportProgress, export_job
else:
    __getattr__ = exports_on_demand(__name__)
