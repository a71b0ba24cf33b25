"""A container of Azure Blob Storage as an object store."""

from tierd.remote.backends.azure.azure_connection import AzureContainer, AzureCredentials
from tierd.remote.backends.azure.azure_object_store import AzureObjectStore

__all__ = ["AzureContainer", "AzureCredentials", "AzureObjectStore"]
