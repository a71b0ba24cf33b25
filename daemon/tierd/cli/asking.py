"""One question of a command to the running daemon. Nothing of the daemon itself is imported for it."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tierd.cli.output.printing import print_error
from tierd.config import find_state_dir
from tierd.errors import DaemonUnreachableError, TierError, TierErrorCode
from tierd.serve import SOCKET_NAME, ControlRequest, ControlVerb, ask_blocking

RequestT = TypeVar("RequestT", bound=ControlRequest)
AnswerT = TypeVar("AnswerT")
T = TypeVar("T")


def ask_daemon(config: Path, socket: Path | None, verb: ControlVerb[RequestT, AnswerT], request: RequestT) -> AnswerT:
    """Ask the daemon of ``config``, or the one behind ``socket``, and return its answer.

    If no daemon answers and the file has faults, a line on standard error says so: they may be the cause.

    Raises:
        ConfigError: the file cannot be read, or its ``state_dir`` cannot be used.
        DaemonUnreachableError: no daemon answers.
        RefusedError: the request would do harm.
        TierError: the daemon could not carry the request out, or ``socket`` is not a control socket of tierd.
    """
    state_dir = _directory_of(socket) if socket is not None else state_dir_of(config)
    try:
        return ask_blocking(state_dir, verb, request)
    except DaemonUnreachableError:
        if socket is None:
            daemon_state_dir(config, None)
        raise


def state_dir_of(config: Path) -> Path:
    """Return the ``state_dir`` of a configuration file, of which no other key is checked if that one is sound.

    Raises:
        ConfigError: the file cannot be read, or its ``state_dir`` cannot be used.
    """
    return find_state_dir(config, os.environ) or daemon_state_dir(config, None)


def daemon_state_dir(config: Path, socket: Path | None) -> Path:
    """Return the directory of the daemon's control socket, for commands that do the work themselves without a daemon.

    If the file has other faults, a line on standard error says so. With ``socket`` the file is not read.

    Raises:
        ConfigError: the file cannot be read, or its ``state_dir`` cannot be used.
        TierError: ``socket`` is not a control socket of tierd.
    """
    if socket is not None:
        return _directory_of(socket)
    from tierd.config import load_state_dir  # noqa: PLC0415 - the schema of the file takes longer than a question

    state_dir, faults = load_state_dir(config, os.environ)
    if faults is not None:
        print_error(f"tierd: {config} has faults, run tierd check-config; the command asks the daemon in {state_dir}")
    return state_dir


def _directory_of(socket: Path) -> Path:
    if socket.name != SOCKET_NAME:
        raise TierError(
            f"{socket} is no control socket",
            remedy=f"name the file {SOCKET_NAME} in state_dir",
            code=TierErrorCode.CONTROL,
        )
    return socket.absolute().parent


@contextlib.contextmanager
def until_interrupted(
    ask: Callable[[], T], *, every_s: float, wait: Callable[[float], None] = time.sleep
) -> Iterator[Iterator[T]]:
    """Yield the answers of ``ask``, one every ``every_s`` seconds, without an end; Ctrl-C is the regular end."""

    def answers() -> Iterator[T]:
        while True:
            yield ask()
            wait(every_s)

    with contextlib.suppress(KeyboardInterrupt):
        yield answers()
