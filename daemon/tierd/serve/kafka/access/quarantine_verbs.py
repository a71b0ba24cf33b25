"""The verbs of the control socket that concern the quarantine of the read endpoint."""

from tierd.errors import RefusedError
from tierd.serve.control_answers import QuarantineAnswer
from tierd.serve.control_protocol import VerbHandler
from tierd.serve.control_requests import HOLD_ENDPOINT, RELEASE_ENDPOINT, QuarantineRequest
from tierd.serve.kafka.access.quarantine import HeldClients, Quarantine


def quarantine_handlers(quarantine: Quarantine | None) -> tuple[VerbHandler, ...]:
    """Return the handlers of a daemon; ``quarantine`` is None if its read endpoint is off."""

    async def release(request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await _required(quarantine).release(by=request.by))

    async def hold(_request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await _required(quarantine).hold())

    return (RELEASE_ENDPOINT.handled_by(release), HOLD_ENDPOINT.handled_by(hold))


def _required(quarantine: Quarantine | None) -> Quarantine:
    if quarantine is None:
        raise RefusedError("the read endpoint is off", remedy="set kafka.listeners, and restart tierd")
    return quarantine


def _answer(clients: HeldClients) -> QuarantineAnswer:
    return QuarantineAnswer(listeners=clients.listeners, principals=clients.principals)
