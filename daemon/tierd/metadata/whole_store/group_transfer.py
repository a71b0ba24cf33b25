"""Consumer groups of the read endpoint in an export: their claims, static members and committed offsets, as stored.

A claim is exported with its owner. The coordinator that a client finds next claims the group anew. A rebuild from the
bucket has no groups: no object holds them.
"""

from typing import Final

from tierd.errors import MetadataExportError, MetadataFillingRefusedError, PreconditionFailedError
from tierd.metadata.kv import Batch, Expect, KeyValueStore, Put
from tierd.metadata.rows import MetadataKeyFactory, encode_value, serde, text_field
from tierd.metadata.rows.value_fields import decoded_value
from tierd.metadata.whole_store.export_format import ExportedGroup

_ROW: Final = "row"
_STATIC: Final = "static/"
_OFFSET: Final = "offset/"
_WRITES_PER_BATCH: Final = 500


async def list_groups(store: KeyValueStore, keys: MetadataKeyFactory) -> list[str]:
    """Return the ids of all consumer groups.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    pairs = await store.scan(keys.groups_prefix)
    return [decoded_value(key, value, lambda body: text_field(body, "group")) for key, value in pairs]


async def exported_group(store: KeyValueStore, keys: MetadataKeyFactory, group: str) -> ExportedGroup | None:
    """Return a group with all its rows; None if it is gone.

    Raises:
        As ``list_groups``.
    """
    row_key = keys.group(group)
    value = await store.get(row_key)
    if value is None:
        return None
    rows: dict[str, dict[str, object]] = {_ROW: serde.decode_body(row_key, value)}
    for prefix, name in _prefixes(keys, group).items():
        for key, content in await store.scan(prefix):
            rows[name + key.removeprefix(prefix)] = serde.decode_body(key, content)
    return ExportedGroup(group, rows)


async def import_group(
    store: KeyValueStore, keys: MetadataKeyFactory, exported: ExportedGroup, *, may_write: bool
) -> None:
    """Write a group whose row is not there yet, the row last, and compare it with the export.

    Raises:
        MetadataExportError: a row of the export belongs to no group.
        MetadataFillingRefusedError: the store has other rows of the group, or another process writes them.
        BackendUnavailableError: the store did not answer; run the import again.
        OutcomeUnknownError: the same.
    """
    row_key = keys.group(exported.group)
    if may_write and await store.get(row_key) is None:
        rows = [Put(_full_key(keys, exported.group, key), encode_value(value)) for key, value in exported.rows.items()]
        rows.sort(key=lambda put: put.key == row_key)
        expect = [Expect(row_key, None)]
        try:
            for start in range(0, len(rows), _WRITES_PER_BATCH):
                await store.apply(Batch(rows[start : start + _WRITES_PER_BATCH], expect))
        except PreconditionFailedError as error:
            raise _refusal(exported.group) from error
    if await exported_group(store, keys, exported.group) != exported:
        raise _refusal(exported.group)


def _prefixes(keys: MetadataKeyFactory, group: str) -> dict[str, str]:
    return {keys.group_static_prefix(group): _STATIC, keys.group_offsets_prefix(group): _OFFSET}


def _full_key(keys: MetadataKeyFactory, group: str, key: str) -> str:
    if key == _ROW:
        return keys.group(group)
    for prefix, name in _prefixes(keys, group).items():
        if key.startswith(name):
            return prefix + key.removeprefix(name)
    raise MetadataExportError(f"the export has a row {key!r} of group {group!r}", remedy="use another export")


def _refusal(group: str) -> MetadataFillingRefusedError:
    return MetadataFillingRefusedError(
        f"group {group!r}: the metadata store has other rows than the export",
        remedy="stop every tierd that uses this metadata store; then begin with an empty store",
    )
