"""Control socket whose answers a test chooses, for commands that ask the daemon."""

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Request = Mapping[str, Any]


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            answer = self.server.answer(json.loads(line))  # type: ignore[attr-defined]  # the type of the server
            self.wfile.write(json.dumps({"ok": True, "answer": answer}).encode() + b"\n")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, answer: Callable[[Request], object]) -> None:
        super().__init__(str(path), _Handler)
        self.answer = answer


@contextlib.contextmanager
def answering_daemon(state_dir: Path, answer: Callable[[Request], object]) -> Iterator[Path]:
    """Answer every request at the control socket in ``state_dir`` with ``answer``; yield the path of the socket."""
    path = state_dir / "control.sock"
    with _Server(path, answer) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="answering daemon")
        serving.start()
        try:
            yield path
        finally:
            server.shutdown()
            serving.join()
            with contextlib.suppress(OSError):
                path.unlink()
