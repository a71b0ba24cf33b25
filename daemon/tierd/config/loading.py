"""YAML and environment to settings: every fault at once, each with file, line and column."""

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from tierd.config.document import Document, read_document
from tierd.config.faults import explain_all
from tierd.config.places import Location
from tierd.config.plugged_schema import as_declared, plugged_schema, with_sections
from tierd.config.schema import TierdConfig
from tierd.config.secret_sources import is_secret_at, resolve_secrets, stand_in_for_secrets
from tierd.config.state_dir import DEFAULT_STATE_DIR, read_config_text
from tierd.config.traversal import anchor_paths
from tierd.errors import ConfigError, ConfigFault

_STATE_DIR_LINE = re.compile(r"^state_dir[ \t]*:.*$", re.MULTILINE)


def load_config(path: Path, env: Mapping[str, str], *, secrets: bool = True) -> TierdConfig:
    """Read the file at ``path``, with ``env`` expanded in its values.

    Paths that begin with ``./`` or ``../`` start from the directory of the file. Blocking: reads file and secrets.

    Args:
        path: the file.
        env: variables for ``${NAME}``, and ``CREDENTIALS_DIRECTORY``.
        secrets: False for a command that only needs to find the daemon: a person's shell has no systemd credentials.
            Secrets are then not read, a missing one is no fault, and a text takes the place of each.

    Raises:
        ConfigError: the file cannot be read, or anything in it is wrong; lists every fault, in the order of the file.
    """
    document, schema = read_with_schema(read_config_text(path), env)
    syntax_error = bool(document.faults) and not document.values
    if not syntax_error:
        anchor_paths(document.tree, schema, path.absolute().parent)
        if secrets:
            resolve_secrets(document, schema, env)
        else:
            stand_in_for_secrets(document, schema)
        config = _validate(document, schema)
        if config and not document.faults:
            return config
    faults = [
        ConfigFault(path, place.line, place.column, message) if place else ConfigFault(path, 0, 0, message)
        for place, message in document.faults
    ]
    raise ConfigError(sorted(faults, key=lambda fault: (fault.line, fault.column)))


def load_state_dir(path: Path, env: Mapping[str, str]) -> tuple[Path, ConfigError | None]:
    """Return where the daemon's control socket is, and the faults of the rest of the file, if it has any.

    A daemon keeps its settings while its file is being edited, so that a fault in another key must not keep a person
    from the daemon. A file that is no YAML still has ``state_dir`` in a line of its own, or leaves it out.

    Raises:
        ConfigError: the file cannot be read, or has a ``state_dir`` that cannot be used.
    """
    try:
        return load_config(path, env, secrets=False).state_dir, None
    except ConfigError as error:
        text, faults = read_config_text(path), error
    document, schema = read_with_schema(text, env)
    if not document.values and (line := _STATE_DIR_LINE.search(text)):
        document, schema = read_with_schema(line[0], env)
        if not document.values:
            raise faults
    anchor_paths(document.tree, schema, path.absolute().parent)
    state_dir = document.tree.get("state_dir", str(DEFAULT_STATE_DIR))
    if ("state_dir",) in document.spoilt or not isinstance(state_dir, str) or not state_dir.startswith("/"):
        raise faults
    return Path(state_dir), faults


def read_with_schema(text: str, env: Mapping[str, str]) -> tuple[Document, type[TierdConfig]]:
    """Parse the file, and once more if it names backends of other packages: their schemas say which keys are secret."""
    document = read_document(text, env, secret_at=partial(is_secret_at, TierdConfig))
    schema, faults = plugged_schema(document.tree)
    if schema is not TierdConfig:
        document = read_document(text, env, secret_at=partial(is_secret_at, schema))
        with_sections(document.tree, schema)
    for location, message in faults.items():
        _leave_out(document, location, message)
    return document, schema


def _leave_out(document: Document, backend: Location, message: str) -> None:
    """Note that a backend cannot be loaded, and take its settings out of the tree: their schema is unknown."""
    document.spoil(backend, message)
    section = document.tree[str(backend[0])]
    assert isinstance(section, dict), "it has named a backend"
    del section["backend"]
    if section.pop("plugin", None) is not None:
        document.spoilt[backend[0], "plugin"] = None


def _validate(document: Document, schema: type[TierdConfig]) -> TierdConfig | None:
    try:
        config = schema.model_validate(document.tree, by_alias=True, by_name=False, context={"file": True})
        return config if schema is TierdConfig else as_declared(config)
    except ValidationError as error:
        for location, message in explain_all(schema, error, document.tree, document.spoilt):
            if not _follows_from(location, document.spoilt):
                unknown = location in document.keys and message.startswith("unknown key")
                document.fault(document.keys[location] if unknown else document.nearest_place(location), message)
    return None


def _follows_from(location: Location, spoilt: Collection[Location]) -> bool:
    """Return True if the fault at ``location`` follows from an earlier one, which removed a value at or below it."""
    return any(location == other[: len(location)] for other in spoilt)
