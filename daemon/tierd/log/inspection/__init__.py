"""Inspection of Kafka's files, decoded and checked for a person: ``tierd inspect``."""

from tierd.log.inspection.inspection_findings import Damage, Decoded, FileFound, InspectionFinding, Note
from tierd.log.inspection.partition_inspection import inspect_path

__all__ = ["Damage", "Decoded", "FileFound", "InspectionFinding", "Note", "inspect_path"]
