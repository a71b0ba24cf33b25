"""The state directory of a configuration file, for a command that asks the daemon and needs nothing else of it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tierd.config.document import read_document
from tierd.errors import ConfigError, ConfigFault

DEFAULT_STATE_DIR: Final = Path("/var/lib/tierd")
_MAX_BYTES = 1024 * 1024
_KEY: Final = "state_dir"


def find_state_dir(path: Path, env: Mapping[str, str]) -> Path | None:
    """Return the ``state_dir`` of the file at ``path``; no other key is checked. Blocking.

    Returns:
        The directory that ``load_config`` would find, or None: the file is no YAML, or its ``state_dir`` is not usable.

    Raises:
        ConfigError: the file cannot be read.
    """
    document = read_document(read_config_text(path), env)
    if not document.values:
        return None
    found = document.tree.get(_KEY, str(DEFAULT_STATE_DIR))
    if (_KEY,) in document.spoilt or not isinstance(found, str):
        return None
    if found.split("/")[0] in (".", ".."):
        return Path(os.path.normpath(path.absolute().parent / found))
    return Path(found) if found.startswith("/") else None


def read_config_text(path: Path) -> str:
    """Return the text of a configuration file. Blocking.

    Raises:
        ConfigError: it cannot be read, is larger than a configuration, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError([ConfigFault(path, 0, 0, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigError([ConfigFault(path, line, column, "is not UTF-8")]) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError([ConfigFault(path, 0, 0, "is larger than 1MiB: this is no configuration")])
    return text
