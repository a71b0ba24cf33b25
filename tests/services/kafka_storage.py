"""Storage of brokers: Kafka's own tool formats the first one of each kind, and later ones are copies of its files.

The tool is a Java, which needs a second of CPU for two small files.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tierd.model import random_id, uuid_to_text

_IDENTITY = "meta.properties"
_formatted: dict[tuple[object, ...], list[dict[str, bytes]]] = {}
"""For each kind, the files that the tool wrote into each log dir."""


class KafkaStorage:
    """Log dirs of one node."""

    def __init__(self, log_dirs: Sequence[Path], *, node: int, kind: Sequence[str]) -> None:
        """Store the arguments; the files of empty storages of one ``kind`` differ in their identities alone."""
        self._log_dirs = log_dirs
        self._node = node
        self._kind = (*kind, len(log_dirs))

    def format(self, run_tool: Callable[[], object]) -> None:
        """Format the storage; ``run_tool`` is called for the first of a kind, and for one that has files."""
        if any(path.exists() and any(path.iterdir()) for path in self._log_dirs):
            run_tool()  # it leaves formatted log dirs as they are
        elif self._kind in _formatted:
            self._copy(_formatted[self._kind])
        else:
            run_tool()
            _formatted[self._kind] = [
                {file.name: file.read_bytes() for file in path.iterdir()} for path in self._log_dirs
            ]

    def _copy(self, log_dirs: Sequence[dict[str, bytes]]) -> None:
        for path, files in zip(self._log_dirs, log_dirs, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (path / name).write_bytes(self._with_own_identity(content) if name == _IDENTITY else content)

    def _with_own_identity(self, content: bytes) -> bytes:
        text = content.decode()
        for name, value in (("node.id", self._node), ("directory.id", uuid_to_text(random_id()))):
            text, count = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
            assert count == 1, f"{count} lines of {_IDENTITY} have {name}: {content!r}"
        return text.encode()
