"""``tierd erase list`` and ``status``: the filed requests, from the metadata alone."""

import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

from tierd.app.engine.host_metadata import HostMetadata
from tierd.app.spark.erasure_answers import erasure_report, erasure_summary
from tierd.errors import TierError, TierErrorCode
from tierd.model import TopicPartition, uuid_from_text
from tierd.pipeline import EraseRequests
from tierd.serve import ErasureReport, ErasureSummary


async def list_erasures(host: HostMetadata, name: TopicPartition | None) -> list[ErasureSummary]:
    """Return every request, of one partition or of all, in the order of filing. A daemon may run meanwhile.

    Raises:
        TierError: the metadata store cannot be read.
    """
    async with _requests(host) as requests:
        found = await requests.list()
    return [erasure_summary(each) for each in found if name is None or each.partition.topic_partition == name]


async def read_erasure(host: HostMetadata, request_id: str) -> ErasureReport:
    """Return the report of one request. A daemon may run meanwhile.

    Raises:
        TierError: there is no request of that id.
        TierError: the metadata store cannot be read.
    """
    async with _requests(host) as requests:
        return erasure_report(await requests.get(erasure_id(request_id)))


def erasure_id(text: str) -> UUID:
    """Return the id of a request that a person wrote.

    Raises:
        TierError: the text is none.
    """
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise TierError(
            f"{text!r} is no id of a request", remedy="see tierd erase list", code=TierErrorCode.UNKNOWN_ERASURE
        ) from error


@contextlib.asynccontextmanager
async def _requests(host: HostMetadata) -> AsyncIterator[EraseRequests]:
    keys = host.metadata_keys(await host.identity())
    async with host.metadata_store(read_only=True) as rows:
        yield EraseRequests(rows, keys)
