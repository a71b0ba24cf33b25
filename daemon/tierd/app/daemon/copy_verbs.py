"""The verbs of the control socket that concern copies: status, partitions, pause, resume and sync."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from tierd.errors import UnknownPartitionError
from tierd.model import TopicPartition
from tierd.serve import (
    PARTITIONS,
    PAUSE,
    RESUME,
    STATUS,
    SYNC,
    PartitionNames,
    PartitionNamesRequest,
    PartitionsRequest,
    StatusAnswer,
    StatusRequest,
    StatusSnapshot,
    VerbHandler,
)
from tierd.tiering import RemoteLogManager

SYNC_PATIENCE_S = 20.0
MAX_NAMES = 1000  # more than a shell lists


def copy_handlers(
    manager: RemoteLogManager,
    status: Callable[[], Awaitable[StatusSnapshot]],
    *,
    patience_s: float = SYNC_PATIENCE_S,
) -> tuple[VerbHandler, ...]:
    """Return the handlers; a request that names no partition concerns all of them. A sync is awaited ``patience_s``."""

    async def report_status(_request: StatusRequest) -> StatusAnswer:
        return StatusAnswer.model_validate((await status()).to_json())

    async def name_partitions(request: PartitionNamesRequest) -> PartitionNames:
        names = (str(status.partition) for status in manager.status())
        return PartitionNames(tuple(sorted(name for name in names if name.startswith(request.prefix))[:MAX_NAMES]))

    async def pause(request: PartitionsRequest) -> PartitionNames:
        partitions = _known(manager, request.partitions)
        manager.pause(partitions)
        return _named(manager, partitions)

    async def resume(request: PartitionsRequest) -> PartitionNames:
        partitions = _known(manager, request.partitions)
        manager.resume(partitions)
        return _named(manager, partitions)

    async def sync(request: PartitionsRequest) -> PartitionNames:
        partitions = _known(manager, request.partitions)
        with contextlib.suppress(TimeoutError):  # a long copy goes on after the answer
            async with asyncio.timeout(patience_s):
                await manager.sync(partitions)
        return _named(manager, partitions)

    return (
        STATUS.handled_by(report_status),
        PARTITIONS.handled_by(name_partitions),
        PAUSE.handled_by(pause),
        RESUME.handled_by(resume),
        SYNC.handled_by(sync),
    )


def _known(manager: RemoteLogManager, wanted: Sequence[TopicPartition]) -> list[TopicPartition] | None:
    """Return ``wanted``; None, which stands for all partitions, if it is empty.

    Raises:
        UnknownPartitionError: this broker does not have one of them.
    """
    here = {status.partition for status in manager.status()}
    unknown = [str(partition) for partition in wanted if partition not in here]
    if unknown:
        raise UnknownPartitionError(f"{', '.join(unknown)}: no such partition here", remedy="see tierd status")
    return list(wanted) or None


def _named(manager: RemoteLogManager, partitions: Sequence[TopicPartition] | None) -> PartitionNames:
    found = partitions or [status.partition for status in manager.status()]
    return PartitionNames(tuple(map(str, found)))
