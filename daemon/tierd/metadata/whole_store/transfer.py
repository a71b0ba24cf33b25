"""Moving metadata from one store to another, of whatever kind, through a file in the form of ``export_format``."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tierd.errors import MetadataExportError, MetadataFillingRefusedError, PreconditionFailedError
from tierd.metadata.kv import Batch, Expect, KeyValueStore, Put
from tierd.metadata.rows import MetadataKeyFactory, encode_value, serde
from tierd.metadata.stored import deleted_partitions, list_partitions
from tierd.metadata.views import PartitionView, load_partition
from tierd.metadata.whole_store.export_format import (
    ExportedGroup,
    ExportedPartition,
    ExportHeader,
    ExportReader,
    end_line,
    group_lines,
    header_line,
    partition_lines,
)
from tierd.metadata.whole_store.group_transfer import exported_group, import_group, list_groups
from tierd.metadata.whole_store.store_filling import FillingSource, StoreFilling, require_empty
from tierd.metadata.whole_store.store_identity import read_store_identity
from tierd.model import TopicIdPartition


@dataclass(frozen=True, slots=True)
class TransferCounts:
    """Counts of a transfer. ``present`` partitions were there already, from an import that was interrupted.

    ``rows`` are those of the partitions; ``groups`` counts consumer groups of the read endpoint.
    """

    partitions: int = 0
    rows: int = 0
    present: int = 0
    groups: int = 0


async def export_lines(
    store: KeyValueStore, keys: MetadataKeyFactory, *, exported_ms: int
) -> AsyncGenerator[str, None]:
    """Yield the lines of the cluster's export. Each partition is read from a snapshot of its own.

    Consumer groups are exported with their committed offsets. A daemon that runs meanwhile may commit later ones.

    Raises:
        MetadataFillingRefusedError: an import or a rebuild of this store is not complete.
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    if await store.get(keys.moving_key) is not None:
        raise MetadataFillingRefusedError(
            "an import or rebuild of this metadata store is not complete", remedy="finish it first"
        )
    store_id = await read_store_identity(store, keys)
    tiers = tuple(value.decode() for _, value in await store.scan(keys.tier_prefix))
    requests = await store.scan(keys.erasure_prefix)
    erasures = {key[len(keys.erasure_prefix) :]: serde.decode_body(key, value) for key, value in requests}
    names = await list_groups(store, keys)
    yield header_line(ExportHeader(keys.cluster_id, store_id, exported_ms, tiers, erasures, bool(names)))
    partitions = rows = groups = 0
    for each in [*await list_partitions(store, keys), *await deleted_partitions(store, keys)]:
        pairs = await store.scan(keys.partition_prefix(each))
        if not pairs:  # forgotten since the listing
            continue
        for line in await asyncio.to_thread(_exported, each, pairs, keys):
            yield line
        partitions, rows = partitions + 1, rows + len(pairs)
    for name in names:
        group = await exported_group(store, keys, name)
        if group is None:  # removed since the listing
            continue
        for line in group_lines(group):
            yield line
        groups += 1
    yield end_line(partitions=partitions, rows=rows, groups=groups)


async def import_lines(
    store: KeyValueStore,
    keys: MetadataKeyFactory,
    open_lines: Callable[[], Iterator[str]],
    *,
    on_progress: Callable[[str], None],
) -> TransferCounts:
    """Fill an empty store from an export; the whole of it is checked before anything is written.

    Interrupted, it leaves whole partitions and a note; the same import continues it. Every partition is read back and
    compared. The store gets its identity at the very end. A store that has it already is only compared.

    Args:
        store: has nothing of the cluster yet.
        keys: of the cluster.
        open_lines: gives the lines, from the first on, each time it is called; it may block.
        on_progress: is called with the progress, as text.

    Raises:
        MetadataExportError: the export is damaged; nothing was written.
        MetadataFillingRefusedError: of another cluster, the store is not empty, or another process writes to it.
        BackendUnavailableError: the store did not answer; run it again.
        OutcomeUnknownError: the same.
    """
    header, expected = await asyncio.to_thread(_checked, open_lines, keys, on_progress)
    if header.cluster_id != keys.cluster_id:
        raise MetadataFillingRefusedError(
            f"the export is of cluster {header.cluster_id}, the configuration is for {keys.cluster_id}",
            remedy="correct cluster_id or log_dirs, or use another export",
        )
    filling = StoreFilling(store, keys, FillingSource("import", header.source))
    is_complete = not await filling.is_begun() and await _has_identity(store, keys, header)
    if not is_complete and not await filling.is_begun():
        await require_empty(store, keys)
        await filling.begin()
    done, present = 0, 0
    sections = ExportReader(open_lines()).sections()
    while exported := await asyncio.to_thread(next, sections, None):
        if isinstance(exported, ExportedGroup):
            await import_group(store, keys, exported, may_write=not is_complete)
            continue
        present += not await _imported(store, keys, None if is_complete else filling, exported)
        done += 1
        on_progress(f"{done} of {expected.partitions} partitions")
    await _require_all(store, keys, done)
    if not is_complete:
        await _file_again(store, keys, header)
        await filling.complete(store_id=header.store_id, tiers=header.tiers)
    return TransferCounts(expected.partitions, expected.rows, present, expected.groups)


def _exported(each: TopicIdPartition, pairs: list[tuple[str, bytes]], keys: MetadataKeyFactory) -> list[str]:
    load_partition(each, pairs, keys)  # what cannot be loaded is no backup
    prefix = len(keys.partition_prefix(each))
    return partition_lines(
        ExportedPartition(each, {key[prefix:]: serde.decode_body(key, value) for key, value in pairs})
    )


def _checked(
    open_lines: Callable[[], Iterator[str]], keys: MetadataKeyFactory, on_progress: Callable[[str], None]
) -> tuple[ExportHeader, TransferCounts]:
    reader, partitions, rows, groups = ExportReader(open_lines()), 0, 0, 0
    for exported in reader.sections():
        if isinstance(exported, ExportedGroup):
            groups += 1
            continue
        view = _view(exported, keys)
        if view.row is None:
            raise MetadataExportError(f"the export has no partition row of {exported.partition}")
        partitions, rows = partitions + 1, rows + len(exported.rows)
        on_progress(f"checked {partitions} partitions")
    return reader.header, TransferCounts(partitions, rows, groups=groups)


def _view(exported: ExportedPartition, keys: MetadataKeyFactory) -> PartitionView:
    return load_partition(exported.partition, _pairs(exported, keys), keys).view


def _pairs(exported: ExportedPartition, keys: MetadataKeyFactory) -> list[tuple[str, bytes]]:
    prefix = keys.partition_prefix(exported.partition)
    return [(prefix + key, encode_value(fields)) for key, fields in sorted(exported.rows.items())]


async def _has_identity(store: KeyValueStore, keys: MetadataKeyFactory, header: ExportHeader) -> bool:
    """Return True for the exported store itself, or one with a completed import: then nothing is to be written."""
    identity = await read_store_identity(store, keys)
    return identity is not None and identity == header.store_id


async def _imported(
    store: KeyValueStore, keys: MetadataKeyFactory, filling: StoreFilling | None, exported: ExportedPartition
) -> bool:
    """Write the partition and read it back; False when it was there already. Without a filling only compare it."""
    key = keys.row(exported.partition)
    view = await asyncio.to_thread(_view, exported, keys)
    assert view.row is not None  # the check has seen to it
    stored = await store.get(key)
    if stored is None and filling is not None:
        # Of a deleted partition, whose rows may not be erased yet, the tombstone says everything.
        rows = {} if view.row.is_tombstone else {name: value for name, value in _pairs(exported, keys) if name != key}
        await filling.write(exported.partition, rows, view.row, stored=None)
    found = await store.scan(keys.partition_prefix(exported.partition))
    load = partial(load_partition, exported.partition, found, keys)
    if (await asyncio.to_thread(load)).view != view:
        raise MetadataFillingRefusedError(
            f"{exported.partition}: the metadata store has other rows than the export",
            remedy="stop every tierd that uses this metadata store; then begin with an empty store",
        )
    return stored is None


async def _file_again(store: KeyValueStore, keys: MetadataKeyFactory, header: ExportHeader) -> None:
    """Store the requests to erase keys; one that is there already, from an import that was interrupted, stays."""
    for name, fields in header.erasures.items():
        key = keys.erasure_prefix + name
        with contextlib.suppress(PreconditionFailedError):
            await store.apply(Batch([Put(key, encode_value(fields))], [Expect(key, None)]))


async def _require_all(store: KeyValueStore, keys: MetadataKeyFactory, expected: int) -> None:
    found = len(await list_partitions(store, keys)) + len(await deleted_partitions(store, keys))
    if found != expected:
        raise MetadataFillingRefusedError(
            f"the metadata store has {found} partitions, the export {expected}",
            remedy="stop every tierd that uses this metadata store; then begin with an empty store",
        )
