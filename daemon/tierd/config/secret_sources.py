"""Sources of secrets: the file itself, a file beside it, or a systemd credential."""

import base64
import contextlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tierd.config.document import Document
from tierd.config.places import Location, dotted
from tierd.config.scram_verifier import MIN_ITERATIONS, ScramVerifier
from tierd.config.section import Settings
from tierd.config.traversal import Leaf, field_at, is_secret, leaves, secret_of_file

_CREDENTIAL = "credential:"
_MAX_BYTES = 64 * 1024
_STAND_INS = (
    "not read",
    base64.b64encode(bytes(32)).decode(),
    "http://not.read",
    *(ScramVerifier(bytes(1), bytes(size), bytes(size), MIN_ITERATIONS).to_text() for size in (32, 64)),
)
"""A text, a key, an address, and the hashes of SCRAM."""


def resolve_secrets(document: Document, schema: type[Settings], env: Mapping[str, str]) -> None:
    """Replace every ``*_file`` and ``credential:NAME`` in the tree by the secret; an unreadable one becomes a fault.

    Blocking: reads small files.
    """
    for leaf in list(leaves(schema, document.tree)):
        if is_secret(leaf.field):
            _resolve_credential(document, leaf, env)
        elif secret_of_file(schema, leaf.location):
            _resolve_file(document, schema, leaf)


def stand_in_for_secrets(document: Document, schema: type[Settings]) -> None:
    """Put a text in the place of every secret of the file, for a command that needs none; no secret is read."""
    for leaf in list(leaves(schema, document.tree)):
        secret = leaf.key if is_secret(leaf.field) else secret_of_file(schema, leaf.location)
        if secret:
            leaf.holder[secret] = _stand_in_at(schema, (*leaf.location[:-1], secret))
    for location in [location for location in document.spoilt if is_secret_at(schema, location)]:
        del document.spoilt[location]
        _section_in(document, location)[str(location[-1])] = _stand_in_at(schema, location)


def _stand_in_at(schema: type[Settings], location: Location) -> str:
    """Return the first text that the field at ``location`` takes for a secret."""
    field = field_at(schema, location)
    assert field is not None, "secrets are fields"
    adapter: TypeAdapter[object] = TypeAdapter(field.rebuild_annotation())
    for text in _STAND_INS:
        with contextlib.suppress(ValidationError):
            adapter.validate_python(text)
            return text
    raise AssertionError(f"no stand-in for the secret {dotted(location)}")


def is_secret_at(schema: type[Settings], location: Location) -> bool:
    """Return True where ``location`` names a secret of the configuration."""
    field = field_at(schema, location)
    return field is not None and is_secret(field)


def _section_in(document: Document, location: Location) -> dict[str, object]:
    holder: object = document.tree
    for part in location[:-1]:
        match holder, part:
            case dict(), str():
                holder = holder[part]
            case list(), int():
                holder = holder[part]
    assert isinstance(holder, dict), "what holds a spoilt value is a section"
    return holder


def _resolve_credential(document: Document, leaf: Leaf, env: Mapping[str, str]) -> None:
    value = leaf.holder[leaf.key]
    if not isinstance(value, str) or not value.startswith(_CREDENTIAL):
        return
    name, directory = value.removeprefix(_CREDENTIAL), env.get("CREDENTIALS_DIRECTORY")
    if not directory:
        problem = f"$CREDENTIALS_DIRECTORY is not set: run under systemd with LoadCredential={name}:/path"
        _leave_out(document, leaf, leaf.key, problem)
    elif "/" in name or not name.strip("."):
        _leave_out(document, leaf, leaf.key, f"{name!r} is no name of a credential")
    else:
        _put(document, leaf, leaf.key, Path(directory) / name)


def _resolve_file(document: Document, schema: type[Settings], leaf: Leaf) -> None:
    secret, path = secret_of_file(schema, leaf.location), leaf.holder[leaf.key]
    assert secret is not None
    if secret in leaf.holder:
        document.fault(document.keys.get(leaf.location), f"{leaf.key} and {secret} are both set: remove one")
    elif isinstance(path, str) and Path(path).is_absolute():
        _put(document, leaf, secret, Path(path))


def _put(document: Document, leaf: Leaf, key: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        secret = content.decode().rstrip("\r\n")
    except OSError as error:
        _leave_out(document, leaf, key, f"cannot read the secret from {path}: {error.strerror}")
        return
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(content) > _MAX_BYTES:
        _leave_out(document, leaf, key, f"{path} holds no secret: it must be text, not empty, at most 64KiB")
    else:
        leaf.holder[key] = secret


def _leave_out(document: Document, leaf: Leaf, secret: str, problem: str) -> None:
    document.spoil(leaf.location, problem)
    document.spoilt.setdefault((*leaf.location[:-1], secret), None)
    leaf.holder.pop(leaf.key, None)
