"""The client of the control socket: one request to the daemon that holds a state directory, and its answer. Blocking.

A command that asks the daemon imports this module and the types of ``control_requests``: nothing of the server, and no
event loop.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tierd.errors import DaemonUnreachableError, RefusedError, TierError, TierErrorCode
from tierd.serve.control_protocol import AnswerT, ControlAnswerLine, ControlVerb, RequestT

SOCKET_NAME = "control.sock"
MAX_ANSWER_BYTES = 64 << 20  # status of many thousands of partitions
ASK_TIMEOUT_S = 40.0

_READ_BYTES = 1 << 20


def ask_blocking(
    state_dir: Path, verb: ControlVerb[RequestT, AnswerT], request: RequestT, *, timeout_s: float = ASK_TIMEOUT_S
) -> AnswerT:
    """Ask the daemon that holds ``state_dir`` and return its answer. Ctrl-C ends the wait; the daemon continues.

    Raises:
        DaemonUnreachableError: no daemon listens there, or the daemon does not answer in time.
        RefusedError: the request would do harm; message and remedy are the daemon's own.
        TierError: the daemon could not carry the request out; message and remedy are the daemon's own.
    """
    with reachable(state_dir):
        line = _exchange(state_dir, sent_line(verb, request), deadline_s=time.monotonic() + timeout_s)
    return answer_of(state_dir, verb, line)


def sent_line(verb: ControlVerb[RequestT, AnswerT], request: RequestT) -> bytes:
    """Return the line that carries a request."""
    return verb.request_line(request).model_dump_json(exclude_defaults=True).encode() + b"\n"


def answer_of(state_dir: Path, verb: ControlVerb[RequestT, AnswerT], line: bytes) -> AnswerT:
    """Return the answer in a line of the daemon that holds ``state_dir``.

    Raises:
        DaemonUnreachableError: another program listens there.
        RefusedError: as ``ask_blocking``.
        TierError: as ``ask_blocking``.
    """
    with reachable(state_dir):
        answer = ControlAnswerLine.model_validate_json(line)
    if not answer.ok and answer.refused:
        raise RefusedError(answer.error, remedy=answer.remedy)
    if not answer.ok:
        raise TierError(answer.error, remedy=answer.remedy, code=TierErrorCode.CONTROL)
    return verb.parse_answer(answer.answer)


@contextlib.contextmanager
def reachable(state_dir: Path) -> Iterator[None]:
    """Turn the errors of an exchange with the daemon that holds ``state_dir`` into one that says what to do.

    Raises:
        DaemonUnreachableError: in place of ``OSError``, ``EOFError`` and ``ValueError``.
    """
    try:
        yield
    except (OSError, EOFError, ValueError) as error:  # TimeoutError and ConnectionError are OSErrors
        remedy = "start it with systemctl start tierd, or check --config: its state_dir names the socket"
        if isinstance(error, PermissionError):
            remedy = "run the command as the user of the daemon, for example with sudo -u kafka"
        raise DaemonUnreachableError(
            f"no answer from tierd on {state_dir / SOCKET_NAME}: {_why(error)}", remedy=remedy
        ) from error


def _why(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "it took too long"
        case OSError():
            return error.strerror or str(error)
        case EOFError():
            return "it closed the connection"
        case _:
            return "the answer is not its protocol"


def _exchange(state_dir: Path, line: bytes, *, deadline_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_left_s(deadline_s))
        with control_address(state_dir) as address:
            connection.connect(address)
        connection.sendall(line)
        received = bytearray()
        while not received.endswith(b"\n"):
            connection.settimeout(_left_s(deadline_s))
            piece = connection.recv(_READ_BYTES)
            if not piece:
                raise EOFError
            received += piece
            if len(received) > MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(received)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


@contextlib.contextmanager
def control_address(state_dir: Path) -> Iterator[str]:
    """Yield a short path to the socket: a unix address has 108 bytes, and a state directory may have more."""
    descriptor = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
