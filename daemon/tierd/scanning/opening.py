"""``tierd.reader`` and ``tierd.async_reader``: opening of the tier for readers in Python."""

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tierd.errors import ArrowMissingError, install_extra, with_remedy

if TYPE_CHECKING:  # pyarrow is an extra, and the rooms below take half a second to import
    from tierd.app import TierReader
    from tierd.scanning.arrow_reader import ArrowReader
    from tierd.scanning.async_arrow_reader import AsyncArrowReader

_DEFAULT_CONFIG: Final = "/etc/tierd/tierd.yaml"


def reader(
    config: "str | os.PathLike[str] | None" = None,
    *,
    cluster_id: str | None = None,
    from_bucket: bool = False,
    accept_unauthenticated: bool = False,
) -> "ArrowReader":
    """Open the tier of a configuration file for reading; no daemon, no broker and no Spark are needed.

    The log dirs of the configuration that are on this host are read too: local log and tier are one log. On a host
    without them, the metadata comes from the metadata store, or from the bucket if the store does not have the tier.

    Args:
        config: the file; None takes the environment variable ``TIERD_CONFIG``, or ``/etc/tierd/tierd.yaml``.
        cluster_id: of the tier; None takes the one of the configuration or of the log dirs.
        from_bucket: read the metadata from the bucket, although the metadata store may have it.
        accept_unauthenticated: with a key ring, and metadata from the bucket: believe also objects without proof.

    Raises:
        ArrowMissingError: pyarrow is not installed.
        ConfigError: the file cannot be used, or the cluster is not known.
        TierError: a store cannot be opened.
    """
    require_pyarrow()
    from tierd.scanning.arrow_reader import ArrowReader  # noqa: PLC0415 - needs pyarrow
    from tierd.scanning.reader_thread import ReaderThread  # noqa: PLC0415 - needs pyarrow

    with with_remedy():
        return ArrowReader(ReaderThread(_opening(config, cluster_id, from_bucket, accept_unauthenticated)))


@contextlib.asynccontextmanager
async def async_reader(
    config: "str | os.PathLike[str] | None" = None,
    *,
    cluster_id: str | None = None,
    from_bucket: bool = False,
    accept_unauthenticated: bool = False,
) -> "AsyncIterator[AsyncArrowReader]":
    """Open the tier as ``reader`` does, in the running event loop; close it afterwards.

    Raises:
        TierError: as ``reader``.
    """
    require_pyarrow()
    from tierd.scanning.async_arrow_reader import AsyncArrowReader  # noqa: PLC0415 - needs pyarrow
    from tierd.scanning.tier_scanner import TierScanner  # noqa: PLC0415 - needs pyarrow

    async with contextlib.AsyncExitStack() as stack:
        with with_remedy():
            opening = _opening(config, cluster_id, from_bucket, accept_unauthenticated)
            opened = AsyncArrowReader(TierScanner(await stack.enter_async_context(opening)))
        stack.push_async_callback(opened.aclose)
        yield opened


def require_pyarrow() -> None:
    """Require the package pyarrow.

    Raises:
        ArrowMissingError: it is not installed.
    """
    if find_spec("pyarrow") is None:
        raise ArrowMissingError(
            "readers in Python and exports need the package pyarrow, which is not installed",
            remedy=install_extra("arrow"),
        )


def _opening(
    config: "str | os.PathLike[str] | None",
    cluster_id: str | None,
    from_bucket: bool,
    accept_unauthenticated: bool,
) -> "AbstractAsyncContextManager[TierReader]":
    from tierd.app import Deployment, SourceRequest, source_reader  # noqa: PLC0415 - not for an import of tierd
    from tierd.config import load_config  # noqa: PLC0415 - as above

    file = Path(os.environ.get("TIERD_CONFIG", _DEFAULT_CONFIG) if config is None else config)
    request = SourceRequest(
        cluster_id=cluster_id, from_bucket=from_bucket, accepts_unauthenticated=accept_unauthenticated
    )
    return source_reader(Deployment(load_config(file, os.environ), file), request, on_progress=lambda _: None)
