"""Partitions that this broker leads: claims, live views, and every change written through to the store."""

from tierd.metadata.leading.led_partitions import MetadataManagerSettings, MetadataStatistics
from tierd.metadata.leading.metadata_manager import RemoteLogMetadataManager

__all__ = [
    "MetadataManagerSettings",
    "MetadataStatistics",
    "RemoteLogMetadataManager",
]
