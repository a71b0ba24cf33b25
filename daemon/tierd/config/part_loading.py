"""A part of the file for commands that need no more: the schema of the whole file takes longer than their answer."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from tierd.config.connectors import METADATA, OBJECT_STORE
from tierd.config.document import Document, read_document
from tierd.config.secret_sources import resolve_secrets, stand_in_for_secrets
from tierd.config.section import Settings
from tierd.config.state_dir import read_config_text
from tierd.config.traversal import anchor_paths, fields_of

PartT = TypeVar("PartT", bound=Settings)


def load_part(path: Path, env: Mapping[str, str], part: type[PartT], *, secrets: bool = True) -> PartT:
    """Read the keys of ``part`` from the file at ``path``, with the values that ``load_config`` would find. Blocking.

    The values of other keys are not checked: that is left to ``tierd check-config``. A file in which anything that was
    read is wrong is read as a whole, so that the error lists every fault; a file that names a backend of another
    package is read as a whole too.

    Args:
        path: the file.
        env: variables for ``${NAME}``, and ``CREDENTIALS_DIRECTORY``.
        part: a model whose keys are keys of the whole file.
        secrets: False puts a text in the place of every secret, as ``load_config``.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or a key of ``part`` is wrong or missing.
    """
    document = read_document(read_config_text(path), env)
    if document.values and not document.faults and not _names_plugin(document):
        _keep_keys_of(part, document)
        anchor_paths(document.tree, part, path.absolute().parent)
        if secrets:
            resolve_secrets(document, part, env)
        else:
            stand_in_for_secrets(document, part)
        if not document.faults:
            with contextlib.suppress(ValidationError):
                return part.model_validate(document.tree, by_alias=True, by_name=False, context={"file": True})
    return _part_of_whole(path, env, part, secrets=secrets)


def _names_plugin(document: Document) -> bool:
    for kind in (METADATA, OBJECT_STORE):
        section = document.tree.get(kind.section)
        if isinstance(section, dict) and section.get("backend", kind.built_in[0]) not in kind.built_in:
            return True
    return False


def _keep_keys_of(part: type[Settings], document: Document) -> None:
    for key in document.tree.keys() - fields_of(part).keys():
        del document.tree[key]


def _part_of_whole(path: Path, env: Mapping[str, str], part: type[PartT], *, secrets: bool) -> PartT:
    from tierd.config.loading import load_config  # noqa: PLC0415 - the schema, for faults and plug-ins alone

    whole = load_config(path, env, secrets=secrets)
    return part.model_validate({name: getattr(whole, name) for name in part.model_fields}, by_name=True)
