"""The blocking client of the control socket: answers, refusals, and a daemon that does not answer as it should."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tierd.errors import DaemonUnreachableError, RefusedError, TierError
from tierd.serve import control_client
from tierd.serve.control_client import SOCKET_NAME, ask_blocking
from tierd.serve.control_protocol import ControlListAnswer, ControlRequest, ControlVerb


class NamesRequest(ControlRequest):
    partitions: tuple[str, ...] = ()


class Names(ControlListAnswer[str]):
    pass


ECHO = ControlVerb("echo", NamesRequest, TypeAdapter(Names))


@contextlib.contextmanager
def serving(state_dir: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Give one connection, after its first bytes have come, to ``serve``."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state_dir / SOCKET_NAME))
        listener.listen()

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(65536) == b'{"command":"echo","partitions":["a-0"]}\n'
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            thread.join()


def asked(state_dir: Path, *, timeout_s: float = 30.0) -> tuple[str, ...]:
    return ask_blocking(state_dir, ECHO, NamesRequest(partitions=("a-0",)), timeout_s=timeout_s).root


def test_answer_that_comes_in_pieces_is_put_together(tmp_path: Path) -> None:
    def in_pieces(connection: socket.socket) -> None:
        for piece in (b'{"ok": tr', b'ue, "answer": ["a-', b'0"]}\n'):
            connection.sendall(piece)

    with serving(tmp_path, in_pieces):
        assert asked(tmp_path) == ("a-0",)


def test_refusal_and_failure_carry_the_words_of_the_daemon(tmp_path: Path) -> None:
    refusal = b'{"ok": false, "error": "it would do harm", "remedy": "think", "refused": true}\n'
    with serving(tmp_path, lambda connection: connection.sendall(refusal)), pytest.raises(RefusedError) as refused:
        asked(tmp_path)
    (tmp_path / SOCKET_NAME).unlink()
    failure = b'{"ok": false, "error": "no such partition", "remedy": "look"}\n'
    with serving(tmp_path, lambda connection: connection.sendall(failure)), pytest.raises(TierError) as failed:
        asked(tmp_path)

    assert (str(refused.value), refused.value.remedy) == ("it would do harm", "think")
    assert (str(failed.value), failed.value.remedy) == ("no such partition", "look")


@pytest.mark.parametrize(
    ("sent", "why"),
    [(b"", "it closed the connection"), (b'{"ok"', "it closed the connection"), (b"HTTP/1.1 400\n", "its protocol")],
)
def test_other_program_at_the_socket_is_no_daemon(tmp_path: Path, sent: bytes, why: str) -> None:
    with (
        serving(tmp_path, lambda connection: connection.sendall(sent)),
        pytest.raises(DaemonUnreachableError, match=why),
    ):
        asked(tmp_path)


def test_answer_above_the_limit_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "MAX_ANSWER_BYTES", 16)
    with (
        serving(tmp_path, lambda connection: connection.sendall(b'{"ok": true, "answer": ["a-0"]}')),
        pytest.raises(DaemonUnreachableError, match="protocol"),
    ):
        asked(tmp_path)


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "without an end"])
def test_daemon_without_an_answer_is_given_up_at_the_deadline(tmp_path: Path, *, drips: bool) -> None:
    is_over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not is_over.wait(0.005):
                connection.sendall(b" " * drips)

    with serving(tmp_path, serve):
        try:
            with pytest.raises(DaemonUnreachableError, match="took too long"):
                asked(tmp_path, timeout_s=0.05)
        finally:
            is_over.set()


def test_state_dir_without_a_socket_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError) as missing:
        asked(tmp_path)
    assert "systemctl start tierd" in missing.value.remedy
