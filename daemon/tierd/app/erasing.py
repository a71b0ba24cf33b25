"""``tierd erase``: requests are filed and stepped by the daemon, which owns the claims, else by this process."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from uuid import UUID, uuid4

from pydantic import JsonValue

from tierd.app.compose import Engine
from tierd.app.erasing_answers import erasure_line, erasure_report
from tierd.app.pipeline import Pipeline, build_pipeline
from tierd.app.standing_in import standing_in
from tierd.app.stores import log_dir_identities, metadata_store
from tierd.clock import SystemClock
from tierd.config import TierdConfig
from tierd.errors import DaemonUnreachableError, RefusedError, UnknownErasureError
from tierd.log import broker_identity
from tierd.metadata import metadata_keys, read_partition
from tierd.model import RemoteLogSegmentState, TopicPartition, uuid_from_text, uuid_to_text
from tierd.pipeline import EraseRequests, new_request
from tierd.serve import OptionsHandler, request
from tierd.tiering import RemoteLogManager, Tiering

Facts = dict[str, JsonValue]
_PATIENCE_S: Final = 25.0  # below the deadline of a control request


async def file_erasure(
    config: TierdConfig,
    config_file: Path,
    name: TopicPartition,
    keys: Collection[bytes],
    *,
    by: str,
    reason: str,
    at_once: bool,
    removes_unread: bool,
) -> Facts:
    """File a request and return its report; durable then.

    Raises:
        UnknownPartitionError: it is not led here.
        RefusedError: no key, too many, or the partition is paused.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: it is not filed, or nobody knows whether it is: look at ``tierd erase --list``.
    """
    encoded: list[JsonValue] = [base64.b64encode(key).decode() for key in keys]
    options: dict[str, JsonValue] = {
        "keys": encoded,
        "by": by,
        "reason": reason,
        "at_once": at_once,
        "removes_unread": removes_unread,
    }
    return await _asked(config, config_file, "erase", [str(name)], options)


async def cancel_erasure(config: TierdConfig, config_file: Path, request_id: str) -> Facts:
    """Give a request up and return its report; what was erased stays so.

    Raises:
        UnknownErasureError: there is none of that id.
        RefusedError: it is done.
        TierError: it could not be given up.
    """
    return await _asked(config, config_file, "cancel-erasure", [], {"request_id": request_id})


async def attest_erasure(config: TierdConfig, config_file: Path, request_id: str, *, by: str, statement: str) -> Facts:
    """Take somebody's word that no older versions of objects are left, and go on.

    Raises:
        UnknownErasureError: there is none of that id.
        RefusedError: the request does not wait for that.
        TierError: it could not be noted.
    """
    options: dict[str, JsonValue] = {"request_id": request_id, "by": by, "statement": statement}
    return await _asked(config, config_file, "attest-erasure", [], options)


async def step_erasures(config: TierdConfig, config_file: Path, names: Sequence[TopicPartition]) -> list[Facts]:
    """Take the open requests of these partitions, none means all, as far as they may go now; return their reports.

    Without a daemon, what is due to expire is expired first, for nobody else does it.

    Raises:
        UnknownPartitionError: one of them is not led here.
        TierError: it could not begin.
    """
    named = [str(name) for name in names]
    with contextlib.suppress(DaemonUnreachableError):
        return cast("list[Facts]", await request(config.state_dir, "step-erasures", named))
    async with _here(config, config_file) as (pipeline, tiering):
        pipeline.candidates.require_led(names or None)
        concerned = {each.partition.topic_partition for each in await pipeline.erase_requests.list(only_open=True)}
        led = {partition.topic_partition for partition in tiering.manager.led()}
        await tiering.removals.expire_here(sorted(concerned & led & set(names or concerned)))
        return await _stepped(pipeline, names)


async def list_erasures(config: TierdConfig, config_file: Path, name: TopicPartition | None) -> list[Facts]:
    """Every request, of one partition or of all, in the order in which they were filed; read beside a daemon too.

    Raises:
        TierError: the metadata store cannot be read.
    """
    async with _requests(config, config_file) as requests:
        found = await requests.list()
    return [erasure_line(each) for each in found if name is None or each.partition.topic_partition == name]


async def read_erasure(config: TierdConfig, config_file: Path, request_id: str) -> Facts:
    """The report of one request; read beside a daemon too.

    Raises:
        UnknownErasureError: there is none of that id.
        TierError: the metadata store cannot be read.
    """
    async with _requests(config, config_file) as requests:
        return erasure_report(await requests.get(_request_id(request_id)))


def erasure_handlers(pipeline: Pipeline) -> Mapping[str, OptionsHandler]:
    """What the control socket can ask about erasing."""

    async def file(names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        return await _filed(pipeline, names, options)

    async def cancel(_names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        cancelled = await pipeline.erasures.cancel(_request_id(str(options.get("request_id"))))
        await pipeline.erasures.publish()
        return erasure_report(cancelled)

    async def attest(_names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        attested = await pipeline.erasures.attest(
            _request_id(str(options.get("request_id"))),
            by=str(options.get("by") or ""),
            statement=str(options.get("statement") or ""),
        )
        await pipeline.erasures.publish()
        return erasure_report(attested)

    async def step(names: Sequence[str], _options: Mapping[str, JsonValue]) -> JsonValue:
        partitions = [TopicPartition.parse(name) for name in names]
        pipeline.candidates.require_led(partitions or None)
        with contextlib.suppress(TimeoutError):  # the regular step, which has more time, goes on with it
            async with asyncio.timeout(_PATIENCE_S):
                return cast("JsonValue", await _stepped(pipeline, partitions))
        found = await pipeline.erase_requests.list(only_open=True)
        return [erasure_report(each) for each in found if not names or str(each.partition.topic_partition) in names]

    return {"erase": file, "cancel-erasure": cancel, "attest-erasure": attest, "step-erasures": step}


async def require_not_being_erased(
    engine: Engine, manager: RemoteLogManager, name: TopicPartition, wanted: Collection[UUID] | None
) -> None:
    """Raise where a segment that is to be taken back may hold a key that is to be erased; None means every one.

    Once a request is done, what it was about is gone, and nothing of it can be taken back.

    Raises:
        RefusedError: names the first such segment, and the request.
        TierError: the metadata store does not answer.
    """
    requests = EraseRequests(engine.rows, engine.metadata.keys)
    for partition in [each for each in manager.led() if each.topic_partition == name]:
        view = await read_partition(engine.rows, engine.metadata.keys, partition)
        for open_request in await requests.list(partition, only_open=True):
            for metadata in filter(open_request.concerns, view.list()):
                is_chosen = metadata.segment.id in wanted if wanted is not None else metadata.soft_delete is not None
                if is_chosen and metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                    raise RefusedError(
                        f"{metadata.segment} may hold keys that request {uuid_to_text(open_request.id)} erases",
                        remedy="leave it out with --segment, or tierd erase --cancel the request first",
                    )


async def _asked(
    config: TierdConfig, config_file: Path, command: str, names: Sequence[str], options: Mapping[str, JsonValue]
) -> Facts:
    """The answer of the daemon, or of the same handler here."""
    with contextlib.suppress(DaemonUnreachableError):
        return cast("Facts", await request(config.state_dir, command, names, options=options))
    async with _here(config, config_file) as (pipeline, _):
        return cast("Facts", await erasure_handlers(pipeline)[command](names, options))


async def _filed(pipeline: Pipeline, names: Sequence[str], options: Mapping[str, JsonValue]) -> Facts:
    (name,) = (TopicPartition.parse(text) for text in names)
    encoded = options.get("keys")
    if not isinstance(encoded, list):
        raise RefusedError("keys is not a list", remedy="use the tierd command of the same version")
    pipeline.candidates.require_led([name])
    candidates = await pipeline.candidates.find([name])
    if not candidates:
        raise RefusedError(f"{name} is paused, or its log cannot be read", remedy="tierd status says why; resume it")
    candidate = candidates[0]
    filed = new_request(
        uuid4(),
        candidate.partition,
        [base64.b64decode(str(text), validate=True) for text in encoded],
        now_ms=SystemClock().now_ms(),
        requested_by=str(options.get("by") or ""),
        reason=str(options.get("reason") or ""),
        tier_end_offset=candidate.chain().end_offset,
        log_end_offset=await pipeline.candidates.log_end_offset(candidate.partition),
        at_once=bool(options.get("at_once")),
        removes_unread=bool(options.get("removes_unread")),
    )
    await pipeline.erase_requests.file(filed)
    await pipeline.erasures.publish()
    return erasure_report(filed)


async def _stepped(pipeline: Pipeline, names: Sequence[TopicPartition]) -> list[Facts]:
    stepped = await pipeline.erasures.step_all()
    return [erasure_report(each) for each in stepped if not names or each.partition.topic_partition in names]


@contextlib.asynccontextmanager
async def _here(config: TierdConfig, config_file: Path) -> AsyncIterator[tuple[Pipeline, Tiering]]:
    async with standing_in(config, config_file) as (engine, tiering):
        yield build_pipeline(engine, tiering, config_file), tiering


@contextlib.asynccontextmanager
async def _requests(config: TierdConfig, config_file: Path) -> AsyncIterator[EraseRequests]:
    identity = broker_identity(
        config_file, cluster_id=config.cluster_id, node_id=config.node_id, found=await log_dir_identities(config)
    )
    async with metadata_store(config, read_only=True) as rows:
        yield EraseRequests(rows, metadata_keys(config.metadata, identity.cluster_id))


def _request_id(text: str) -> UUID:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise UnknownErasureError(f"{text!r} is no id of a request", remedy="see tierd erase --list") from error
