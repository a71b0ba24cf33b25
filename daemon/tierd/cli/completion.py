"""Completion of partitions and topics in a shell: the names that the running daemon knows, or none."""

import os
from collections.abc import Mapping
from pathlib import Path

import typer

PATIENCE_S = 0.3


def partition_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the partitions that begin with ``incomplete``; none, and no message, where no daemon answers at once."""
    return list(_asked(ctx.params, incomplete))


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with ``incomplete``, as ``partition_names``."""
    return list(dict.fromkeys(name.rpartition("-")[0] for name in _asked(ctx.params, incomplete)))


def completed_words(env: Mapping[str, str]) -> list[str]:
    """Return the words after ``tierd`` that a shell asks to complete, as it passes them; empty where none asks."""
    line = env.get("COMP_WORDS") or env.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:] if "_TIERD_COMPLETE" in env else []


def _asked(given: Mapping[str, object], prefix: str) -> tuple[str, ...]:
    # Imported here: the options of every command name this module, and most commands complete nothing.
    from tierd.config import find_state_dir  # noqa: PLC0415
    from tierd.errors import TierError  # noqa: PLC0415
    from tierd.serve import PARTITIONS, PartitionNamesRequest, ask_blocking  # noqa: PLC0415

    socket, config = given.get("socket"), given.get("config")
    try:
        state_dir = Path(str(socket)).absolute().parent if socket else find_state_dir(Path(str(config)), os.environ)
        if state_dir is None:
            return ()
        request = PartitionNamesRequest(prefix=prefix)
        return ask_blocking(state_dir, PARTITIONS, request, timeout_s=PATIENCE_S).root
    except TierError:
        return ()
