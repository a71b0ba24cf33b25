"""``tierd erase``: requests are filed and stepped by the daemon, which owns the claims, else by this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from tierd.app.engine.compose import Engine, standing_in
from tierd.app.engine.deployment import Deployment
from tierd.app.spark.build_pipeline import Pipeline, build_pipeline
from tierd.app.spark.filed_erasures import erasure_id, erasure_report
from tierd.clock import SystemClock
from tierd.errors import RefusedError
from tierd.metadata import read_partition
from tierd.model import RemoteLogSegmentState, TopicPartition, random_id, uuid_to_text
from tierd.pipeline import EraseRequest, EraseRequests, new_request
from tierd.serve import (
    ATTEST_ERASURE,
    CANCEL_ERASURE,
    FILE_ERASURE,
    STEP_ERASURES,
    AttestErasureRequest,
    CancelErasureRequest,
    ControlVerb,
    ErasureReport,
    FileErasureRequest,
    StepErasuresRequest,
    SteppedErasures,
    VerbHandler,
    ask_or_run,
)
from tierd.tiering import RemoteLogManager, Tiering

_RequestT = TypeVar("_RequestT", FileErasureRequest, CancelErasureRequest, AttestErasureRequest)
_PATIENCE_S: Final = 25.0  # below the deadline of a control request


async def file_erasure(deployment: Deployment, request: FileErasureRequest) -> ErasureReport:
    """File a request and return its report; the request is durable then.

    Raises:
        UnknownPartitionError: the partition is not led here.
        RefusedError: no key, too many keys, or the partition is paused or its log cannot be read.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: the request is not filed, or it is unknown whether it is: look at ``tierd erase list``.
    """
    return await _ask_or_run(deployment, FILE_ERASURE, request, _file)


async def cancel_erasure(deployment: Deployment, request_id: str) -> ErasureReport:
    """Withdraw a request and return its report; what was erased stays erased.

    Raises:
        TierError: there is no request of that id.
        RefusedError: the request is done.
        TierError: the request could not be withdrawn.
    """
    request = CancelErasureRequest(request_id=erasure_id(request_id))
    return await _ask_or_run(deployment, CANCEL_ERASURE, request, _cancel)


async def attest_erasure(deployment: Deployment, request_id: str, *, by: str, statement: str) -> ErasureReport:
    """Record a person's statement that no older versions of objects are left, and go on with the request.

    Raises:
        TierError: there is no request of that id.
        RefusedError: the request does not wait for that.
        TierError: the statement could not be recorded.
    """
    request = AttestErasureRequest(request_id=erasure_id(request_id), by=by, statement=statement)
    return await _ask_or_run(deployment, ATTEST_ERASURE, request, _attest)


async def step_erasures(deployment: Deployment, names: Sequence[TopicPartition]) -> SteppedErasures:
    """Take every open request as far as it may go now; return the reports of these partitions, none means all.

    Without a daemon, what is due to expire is expired first, because no other process does it.

    Raises:
        UnknownPartitionError: one of them is not led here.
        TierError: the step could not begin.
    """
    request = StepErasuresRequest(partitions=tuple(names))

    async def step_here() -> SteppedErasures:
        async with _here(deployment) as (pipeline, tiering):
            pipeline.candidates.require_led(names or None)
            filed = await pipeline.erase_requests.list(only_open=True)
            concerned = {each.partition.topic_partition for each in filed}
            led = {partition.topic_partition for partition in tiering.manager.led()}
            await tiering.removals.expire_here(sorted(concerned & led & set(names or concerned)))
            return await _stepped(pipeline, names)

    return await ask_or_run(deployment.state_dir, STEP_ERASURES, request, step_here)


def erasure_handlers(pipeline: Pipeline) -> tuple[VerbHandler, ...]:
    """Return the handlers of the verbs that concern requests to erase."""
    return (
        FILE_ERASURE.handled_by(partial(_file, pipeline)),
        CANCEL_ERASURE.handled_by(partial(_cancel, pipeline)),
        ATTEST_ERASURE.handled_by(partial(_attest, pipeline)),
        STEP_ERASURES.handled_by(partial(_step, pipeline)),
    )


async def require_not_being_erased(
    engine: Engine, manager: RemoteLogManager, name: TopicPartition, wanted: Collection[UUID] | None
) -> None:
    """Raise if a segment that is to be taken back may hold a key that is to be erased.

    A request that is done no longer matters: its segments are gone and cannot be taken back.

    Args:
        engine: the stores.
        manager: the partitions that are led.
        name: the partition.
        wanted: ids of the segments; None means every segment in its grace.

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
                        remedy="leave it out with --segment, or tierd erase withdraw the request first",
                    )


async def _ask_or_run(
    deployment: Deployment,
    verb: ControlVerb[_RequestT, ErasureReport],
    request: _RequestT,
    carry_out: Callable[[Pipeline, _RequestT], Awaitable[ErasureReport]],
) -> ErasureReport:
    """Return the answer of the daemon; without a daemon, the answer of ``carry_out`` in this process."""

    async def run_here() -> ErasureReport:
        async with _here(deployment) as (pipeline, _):
            return await carry_out(pipeline, request)

    return await ask_or_run(deployment.state_dir, verb, request, run_here)


async def _file(pipeline: Pipeline, request: FileErasureRequest) -> ErasureReport:
    name = request.partition
    pipeline.candidates.require_led([name])
    candidates = await pipeline.candidates.find([name])
    if not candidates:
        raise RefusedError(f"{name} is paused, or its log cannot be read", remedy="tierd status says why; resume it")
    candidate = candidates[0]
    filed = new_request(
        random_id(),
        candidate.partition,
        request.keys,
        now_ms=SystemClock().now_ms(),
        requested_by=request.by,
        reason=request.reason,
        tier_end_offset=candidate.chain().end_offset,
        log_end_offset=await pipeline.candidates.log_end_offset(candidate.partition),
        at_once=request.at_once,
        removes_unread=request.removes_unread,
    )
    await pipeline.erase_requests.file(filed)
    return await _published(pipeline, filed)


async def _cancel(pipeline: Pipeline, request: CancelErasureRequest) -> ErasureReport:
    return await _published(pipeline, await pipeline.erasures.cancel(request.request_id))


async def _attest(pipeline: Pipeline, request: AttestErasureRequest) -> ErasureReport:
    attested = await pipeline.erasures.attest(request.request_id, by=request.by, statement=request.statement)
    return await _published(pipeline, attested)


async def _published(pipeline: Pipeline, changed: EraseRequest) -> ErasureReport:
    await pipeline.erasures.publish()
    return erasure_report(changed)


async def _step(pipeline: Pipeline, request: StepErasuresRequest) -> SteppedErasures:
    names = request.partitions
    pipeline.candidates.require_led(names or None)
    with contextlib.suppress(TimeoutError):  # the regular step, which has more time, goes on with the requests
        async with asyncio.timeout(_PATIENCE_S):
            return await _stepped(pipeline, names)
    return _reports(await pipeline.erase_requests.list(only_open=True), names)


async def _stepped(pipeline: Pipeline, names: Sequence[TopicPartition]) -> SteppedErasures:
    return _reports(await pipeline.erasures.step_all(), names)


def _reports(requests: Collection[EraseRequest], names: Sequence[TopicPartition]) -> SteppedErasures:
    chosen = [each for each in requests if not names or each.partition.topic_partition in names]
    return SteppedErasures(tuple(map(erasure_report, chosen)))


@contextlib.asynccontextmanager
async def _here(deployment: Deployment) -> AsyncIterator[tuple[Pipeline, Tiering]]:
    async with standing_in(deployment) as (engine, tiering):
        yield build_pipeline(engine, tiering), tiering
