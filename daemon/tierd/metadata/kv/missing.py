"""A backend whose package is not installed: an extra of tierd's, imported when the backend is opened."""

from tierd.errors import MetadataError, install_extra


def missing_package(backend: str, error: ModuleNotFoundError) -> MetadataError:
    """Return the error for ``metadata.backend`` where its client is not there."""
    return MetadataError(
        f"metadata.backend {backend} needs the package {error.name}, which is not installed",
        remedy=install_extra(backend),
    )
