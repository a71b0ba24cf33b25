"""The verbs of the control socket that concern the quarantine of the read endpoint."""

from tierd.serve.control_answers import QuarantineAnswer
from tierd.serve.control_protocol import VerbHandler
from tierd.serve.control_requests import HOLD_ENDPOINT, RELEASE_ENDPOINT, QuarantineRequest
from tierd.serve.kafka.access.quarantine import HeldClients, Quarantine


def quarantine_handlers(quarantine: Quarantine) -> tuple[VerbHandler, ...]:
    """Return the handlers of a daemon with a read endpoint."""

    async def release(request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await quarantine.release(by=request.by))

    async def hold(_request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await quarantine.hold())

    return (RELEASE_ENDPOINT.handled_by(release), HOLD_ENDPOINT.handled_by(hold))


def _answer(clients: HeldClients) -> QuarantineAnswer:
    return QuarantineAnswer(listeners=clients.listeners, principals=clients.principals)
