"""The process epoch: a number that rises with each start of the daemon, also where the clock was set back."""

from pathlib import Path
from typing import Final

from tierd.errors import StateDirError
from tierd.files import open_to_read, replace_privately
from tierd.json_parsing import parse_json

FILE_NAME: Final = "process-epoch.json"
_MAX_BYTES: Final = 256
_MAX_EPOCH: Final = 2**62


def next_process_epoch(state_dir: Path, *, now_ms: int) -> int:
    """Return the epoch of this process and keep it for the next one. Blocking; the caller holds the instance lock.

    The epoch is the wall clock in milliseconds, and at least one more than the last epoch in ``state_dir``. A file that
    is missing or damaged counts as no last epoch.

    Raises:
        StateDirError: the epoch cannot be stored, so that a next process might take it again.
    """
    path = state_dir / FILE_NAME
    epoch = max(now_ms, _last_epoch(path) + 1)
    try:
        replace_privately(path, f'{{"format": 1, "process_epoch": {epoch}}}\n'.encode())
    except OSError as error:
        raise StateDirError(
            f"{path} cannot be written: {error.strerror or error}", remedy="check state_dir and its disk"
        ) from error
    return epoch


def _last_epoch(path: Path) -> int:
    try:
        with open_to_read(path) as file:
            content = parse_json(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return -1
    epoch = content.get("process_epoch") if isinstance(content, dict) else None
    is_usable = isinstance(epoch, int) and not isinstance(epoch, bool) and 0 <= epoch < _MAX_EPOCH
    return epoch if is_usable and isinstance(epoch, int) else -1
