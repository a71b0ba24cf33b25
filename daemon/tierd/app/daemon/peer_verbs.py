"""Requests between daemons over MQTT: the answers to peers, and the verbs of the control socket that ask them.

The answers are summaries, because a message has 4 KiB. No verb deletes anything (push-replication 4.3).
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from tierd.app.daemon.copy_verbs import copy_handlers
from tierd.errors import ControlPlaneError, PartitionNameError, UnknownPartitionError
from tierd.model import TopicPartition
from tierd.serve import (
    ASK_PEER,
    PEERS,
    AskPeerRequest,
    ControlRequestLine,
    PeerAnswer,
    PeersAnswer,
    PeersRequest,
    PeerSummary,
    StatusSnapshot,
    VerbHandler,
    push_lines,
)
from tierd.tiering import PartitionStatus, RemoteLogManager

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import MqttControl, NodeState, PeerRequest

    PeerHandler = Callable[[PeerRequest], Awaitable[JsonValue]]

_PASSED_ON: Final = ("pause", "resume", "sync")
_NAMES_BYTES: Final = 2_000
_MOST_DESCRIBED: Final = 4
_MOST_CAUSES: Final = 4
_TEXT_CHARS: Final = 200


def peer_handlers(
    manager: RemoteLogManager, status: Callable[[], Awaitable[StatusSnapshot]], *, patience_s: float
) -> "Mapping[str, PeerHandler]":
    """Return the answers to requests of peers, by verb; a sync goes on in the background after ``patience_s``."""
    own = {each.verb: each for each in copy_handlers(manager, status, patience_s=patience_s)}

    async def report_status(_: "PeerRequest") -> JsonValue:
        return summary(await status())

    async def describe(request: "PeerRequest") -> JsonValue:
        wanted = [TopicPartition.parse(name) for name in request.partitions]
        if not 1 <= len(wanted) <= _MOST_DESCRIBED:
            raise PartitionNameError(
                f"{len(wanted)} partitions: describe takes 1 to {_MOST_DESCRIBED}", remedy="ask for fewer at a time"
            )
        known = {each.partition: each for each in await manager.current_status()}
        if missing := [str(each) for each in wanted if each not in known]:
            raise UnknownPartitionError(f"{', '.join(missing)}: no such partition here", remedy="see tierd status")
        return [_described(known[each]) for each in wanted]

    return {
        "status": report_status,
        "describe": describe,
        **{verb: _passed_on(own[verb]) for verb in _PASSED_ON},
    }


def peer_verbs(mqtt: "MqttControl | None") -> tuple[VerbHandler, ...]:
    """Return the handlers of the control socket that concern peers."""

    async def list_peers(_: PeersRequest) -> PeersAnswer:
        control = _required(mqtt)
        view, own = control.state.view, control.state.identity.node_id
        led = view.led_counts()
        peers = [_peer(node, is_this=node.node == own, led=led[node.node]) for node in view.nodes()]
        return PeersAnswer(peers=tuple(peers), problem=control.statistics().problem)

    async def ask_peer(request: AskPeerRequest) -> PeerAnswer:
        control = _required(mqtt)
        names = [str(partition) for partition in request.partitions]
        return PeerAnswer(node=request.node, answer=await control.ask(request.node, request.verb, partitions=names))

    return PEERS.handled_by(list_peers), ASK_PEER.handled_by(ask_peer)


def summary(snapshot: StatusSnapshot) -> JsonValue:
    """Return the status in a size that fits into one message, whatever the number of partitions is."""
    return {
        "version": snapshot.version,
        "pid": snapshot.pid,
        "node_id": snapshot.node_id,
        "started_ms": snapshot.started_ms,
        "now_ms": snapshot.now_ms,
        "ready": snapshot.is_ready,
        "not_ready": [_cut(cause) for cause in snapshot.not_ready[:_MOST_CAUSES]],
        "outages": [outage.service for outage in snapshot.outages],
        "partitions": len(snapshot.partitions),
        "states": dict(snapshot.states()),
        "worst_lag": snapshot.worst_lag(),
        "push": [*push_lines(snapshot.push_summary())],
        "unprotected": dict(snapshot.unprotected),
    }


def _passed_on(handler: VerbHandler) -> "PeerHandler":
    """Return the answer to a peer by a verb of the control socket: the partitions, or as many names as fit."""

    async def answer(request: "PeerRequest") -> JsonValue:
        names = await handler.answer(ControlRequestLine(command=handler.verb, partitions=request.partitions))
        assert isinstance(names, list), "these verbs answer the names of partitions"
        return {"partitions": len(names), "names": [*_fitting(map(str, names))]}

    return answer


def _fitting(names: Iterable[str]) -> Iterable[str]:
    left = _NAMES_BYTES
    for name in names:
        left -= len(json.dumps(name)) + 2
        if left < 0:
            return
        yield name


def _described(status: PartitionStatus) -> JsonValue:
    return {
        "partition": str(status.partition),
        "topic_id": status.topic_id,
        "role": status.role,
        "leader_epoch": status.leader_epoch,
        "state": status.state,
        "reason": _cut(status.last_error or status.reason or ""),
        "copied_through": status.copied_through,
        "high_watermark": status.high_watermark,
        "lag": {name: value for name, value in asdict(status.lag).items() if isinstance(value, int)},
    }


def _peer(node: "NodeState", *, is_this: bool, led: int) -> PeerSummary:
    endpoint = node.endpoint
    return PeerSummary(
        node_id=node.node,
        online=node.online,
        is_this=is_this,
        version=node.version,
        endpoint=f"{endpoint.host}:{endpoint.port}" if endpoint is not None else "",
        features=node.features,
        started_at_ms=node.started_at,
        process_epoch=node.process_epoch,
        led_partitions=led,
    )


def _required(mqtt: "MqttControl | None") -> "MqttControl":
    if mqtt is None:
        raise ControlPlaneError("no MQTT broker is configured", remedy="set control.mqtt.address")
    return mqtt


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]} …"
