"""What the control socket can ask of the running daemon."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pydantic import JsonValue

from tierd.errors import UnknownPartitionError
from tierd.model import TopicPartition
from tierd.serve import ControlHandler, StatusSnapshot
from tierd.tiering import RemoteLogManager

SYNC_PATIENCE_S = 20.0


def control_handlers(
    manager: RemoteLogManager, status: Callable[[], Awaitable[StatusSnapshot]]
) -> Mapping[str, ControlHandler]:
    """Return the commands by name; none of the named partitions means all of them."""

    async def tell_status(_names: Sequence[str]) -> JsonValue:
        return (await status()).to_json()

    async def pause(names: Sequence[str]) -> JsonValue:
        partitions = _known(manager, names)
        manager.pause(partitions)
        return _named(manager, partitions)

    async def resume(names: Sequence[str]) -> JsonValue:
        partitions = _known(manager, names)
        manager.resume(partitions)
        return _named(manager, partitions)

    async def sync(names: Sequence[str]) -> JsonValue:
        partitions = _known(manager, names)
        with contextlib.suppress(TimeoutError):  # long copies go on without anybody waiting for them
            async with asyncio.timeout(SYNC_PATIENCE_S):
                await manager.sync(partitions)
        return _named(manager, partitions)

    return {"status": tell_status, "pause": pause, "resume": resume, "sync": sync}


def _known(manager: RemoteLogManager, names: Sequence[str]) -> list[TopicPartition] | None:
    """Parse ``names``; None stands for all partitions.

    Raises:
        PartitionNameError: a name that is no partition's.
        UnknownPartitionError: this broker has no such partition.
    """
    wanted = [TopicPartition.parse(name) for name in names]
    here = {status.partition for status in manager.status()}
    unknown = [str(partition) for partition in wanted if partition not in here]
    if unknown:
        raise UnknownPartitionError(f"{', '.join(unknown)}: no such partition here", remedy="see tierd status")
    return wanted or None


def _named(manager: RemoteLogManager, partitions: Sequence[TopicPartition] | None) -> list[JsonValue]:
    return [str(partition) for partition in partitions or [status.partition for status in manager.status()]]
