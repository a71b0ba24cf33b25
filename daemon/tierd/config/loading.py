"""YAML and environment to settings: every fault at once, each with file, line and column."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tierd.config.document import Document, read_document
from tierd.config.faults import explain
from tierd.config.places import Location, PlacedFaultsError, dotted, path_faults
from tierd.config.schema import TierdConfig
from tierd.config.secret_sources import resolve_secrets, stand_in_for_secrets
from tierd.config.traversal import leaves, unit_of
from tierd.config.values import Unit
from tierd.errors import ConfigError, ConfigFault

_MAX_BYTES = 1024 * 1024


def load_config(path: Path, env: Mapping[str, str], *, secrets: bool = True) -> TierdConfig:
    """Read the file at ``path``, with ``env`` expanded in its values.

    Paths that begin with ``./`` or ``../`` start from the directory of the file. Blocking: reads it and its secrets.

    Args:
        path: the file.
        env: variables for ``${NAME}``, and ``CREDENTIALS_DIRECTORY``.
        secrets: False for who only needs to find the daemon. Then secrets are neither read nor missed, since a person's
            shell has no systemd credentials, and a text stands in the place of each.

    Raises:
        ConfigError: the file cannot be read, or anything in it is wrong; lists every fault, in the order of the file.
    """
    document = read_document(_read_text(path), env)
    syntax_error = bool(document.faults) and not document.values
    if not syntax_error:
        _anchor_paths(document, path.absolute().parent)
        if secrets:
            resolve_secrets(document, env)
        else:
            stand_in_for_secrets(document)
        config = _validate(document)
        if config and not document.faults:
            return config
    faults = [
        ConfigFault(path, place.line, place.column, message) if place else ConfigFault(path, 0, 0, message)
        for place, message in document.faults
    ]
    raise ConfigError(sorted(faults, key=lambda fault: (fault.line, fault.column)))


def _read_text(path: Path) -> str:
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


def _anchor_paths(document: Document, directory: Path) -> None:
    for leaf in leaves(TierdConfig, document.tree):
        value = leaf.holder[leaf.key]
        if unit_of(leaf.field) is Unit.PATH and isinstance(value, str) and value.split("/")[0] in (".", ".."):
            leaf.holder[leaf.key] = os.path.normpath(directory / value)


def _validate(document: Document) -> TierdConfig | None:
    try:
        return TierdConfig.model_validate(document.tree, by_alias=True, by_name=False, context={"file": True})
    except ValidationError as error:
        found = [
            fault
            for details in error.errors()
            if not _is_rule_over(details, document.spoilt)
            for fault in explain(TierdConfig, details)
        ]
        across = [(location, f"{dotted(location)}: {message}") for location, message in path_faults(*_paths(document))]
        for location, message in dict.fromkeys([*found, *across]):
            if not _follows_from(location, document.spoilt):
                unknown = location in document.keys and message.startswith("unknown key")
                document.fault(document.keys[location] if unknown else document.nearest_place(location), message)
    return None


def _is_rule_over(details: ErrorDetails, spoilt: Collection[Location]) -> bool:
    """Whether a rule between keys failed in a section that an earlier fault has taken a key away from."""
    section = details["loc"]
    is_rule = isinstance(details.get("ctx", {}).get("error"), PlacedFaultsError)
    return is_rule and any(other[: len(section)] == section for other in spoilt)


def _follows_from(location: Location, spoilt: Collection[Location]) -> bool:
    """Whether a fault only says that a value is not there which an earlier fault has taken away."""
    return any(location == other[: len(location)] for other in spoilt)


def _paths(document: Document) -> tuple[dict[Location, Path], dict[Location, Path]]:
    """Log dirs and tierd's own paths, as far as they can be read, for the rules between them."""
    paths = {
        leaf.location: Path(os.path.normpath(value))
        for leaf in leaves(TierdConfig, document.tree)
        if unit_of(leaf.field) is Unit.PATH
        and isinstance(value := leaf.holder[leaf.key], str)
        and value.startswith("/")
    }
    own: tuple[Location, ...] = (
        ("state_dir",),
        ("hold", "dir"),
        ("fetch", "cache_dir"),
        ("metadata", "sqlite", "path"),
        ("remote", "filesystem", "path"),
    )
    log_dirs = {location: path for location, path in paths.items() if location[0] == "log_dirs"}
    return log_dirs, {location: paths[location] for location in own if location in paths}
