"""Partitions that this broker leads: claims, live views, and every change written through to the store."""

from tierd.metadata.leading.led_partitions import MetadataManagerSettings
from tierd.metadata.leading.metadata_manager import RemoteLogMetadataManager
from tierd.metadata.leading.metadata_statistics import MetadataStatistics

__all__ = [
    "MetadataManagerSettings",
    "MetadataStatistics",
    "RemoteLogMetadataManager",
]
