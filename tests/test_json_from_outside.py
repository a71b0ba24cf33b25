"""JSON and YAML from outside: every reader reports text that is nested too deeply, or no number, as its own error."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.cli.output.record_lines import parse_json_line
from tierd.config.document import read_document
from tierd.cost.usage_ledger import UsageLedger
from tierd.errors import (
    MetadataDecodeError,
    MetadataExportError,
    RecordLineError,
    RemoteIntegrityError,
    StateDirError,
    TierError,
)
from tierd.log import OsDisk
from tierd.log.files.clean_shutdown import parse_broker_epoch
from tierd.metadata import FillingSource, MemoryKeyValueStore, MetadataKeyFactory, Put, StoreFilling
from tierd.metadata.kv.key_value_store import Batch
from tierd.metadata.rows import serde
from tierd.metadata.whole_store.export_format import ExportReader
from tierd.model import TopicIdPartition
from tierd.pipeline.committing.messages import decode_answer, decode_request
from tierd.pipeline.erasing.reports import decode_report
from tierd.pipeline.pipeline_errors import ReadOptionError, WorkOrderError
from tierd.pipeline.running.run_history import HISTORY_NAME, RunHistory
from tierd.pipeline.source.positions import parse_offsets
from tierd.pipeline.source.read_options import parse_options
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.remote import (
    EMPTY_RING,
    CatalogueCodec,
    LogStartRecord,
    SegmentManifest,
    Tombstone,
    claim_tier,
    read_tier_identity,
)
from tierd.remote.backends.gcs.gcs_errors import GcsRefusal
from tierd.restore.changelog.changelog_errors import CheckpointFileError
from tierd.restore.changelog.checkpoints.checkpoint_meta import read_checkpoint_metas
from tierd.restore.journal import Journal
from tierd.restore.live_cluster.offset_map import read_offset_map
from tierd.restore.log_dir.restore_manifest import has_all_logs
from tierd.serve import ControlServer
from tierd.tiering.removing.ledger import LEDGER_NAME, read_ledger

KEYS = MetadataKeyFactory("cluster")
PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)

ATTACKS = {
    "3,000 levels of lists": '{"a": ' + "[" * 3_000 + "]" * 3_000 + "}",
    "300 levels of objects": '{"a": ' * 300 + "1" + "}" * 300,
    "a list alone": "[" * 100_000,
    "an integer of 5,000 digits": '{"format_version": ' + "9" * 5_000 + "}",
    "a number that is none": '{"format_version": NaN}',
}
attacks = pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)

READERS: dict[str, tuple[Callable[[str], object], type[TierError]]] = {
    "manifest": (lambda text: SegmentManifest.decode(text.encode(), key="k"), RemoteIntegrityError),
    "tombstone": (lambda text: Tombstone.decode(text.encode(), key="k"), RemoteIntegrityError),
    "log start": (
        lambda text: LogStartRecord.decode(text.encode(), key="k", cluster_id="c", partition=PARTITION),
        RemoteIntegrityError,
    ),
    "erasure report": (lambda text: decode_report("k", text.encode()), RemoteIntegrityError),
    "catalogue object": (
        lambda text: CatalogueCodec("c", "", EMPTY_RING).decode("k", text.encode()),
        RemoteIntegrityError,
    ),
    "partition row": (lambda text: serde.decode_row("k", b"\x01" + text.encode()), MetadataDecodeError),
    "export": (lambda text: ExportReader([text + "\n"]), MetadataExportError),
    "request of a job": (lambda text: decode_request(text.encode()), WorkOrderError),
    "answer of a leader": (lambda text: decode_answer(text.encode()), WorkOrderError),
    "record line": (lambda text: parse_json_line(text.encode(), 1, 0), RecordLineError),
    "offsets of Spark": (lambda text: parse_offsets(text, option="startingOffsets", smallest=0), ReadOptionError),
    "assignment of Spark": (lambda text: parse_options({"assign": text}, is_streaming=False), ReadOptionError),
}


@attacks
@pytest.mark.parametrize("name", READERS)
def test_each_reader_reports_hostile_json_as_its_own_error(name: str, text: str) -> None:
    read, fault = READERS[name]
    with pytest.raises(fault) as caught:
        read(text)
    assert caught.value.remedy


@attacks
async def test_hostile_json_as_tier_identity_is_reported_as_damage(text: str) -> None:
    store = MemoryObjectStore()
    await claim_tier(store, key_prefix="", cluster_id="cluster", store_id=UUID(int=1))
    (info,) = await store.list_objects("")
    await store.replace(info.key, text.encode(), previous=await store.get(info.key))
    with pytest.raises(RemoteIntegrityError, match=info.key):
        await read_tier_identity(store, key_prefix="", cluster_id="cluster")


@attacks
async def test_hostile_json_as_mark_of_a_filling_is_reported_with_its_key(text: str) -> None:
    store = MemoryKeyValueStore()
    await store.apply(Batch([Put(KEYS.moving_key, b"\x01" + text.encode())]))
    with pytest.raises(MetadataDecodeError, match=KEYS.moving_key):
        await StoreFilling(store, KEYS, FillingSource("import", "a")).is_begun()


@attacks
async def test_hostile_json_as_control_request_is_answered_with_an_error(text: str, tmp_path: Path) -> None:
    clock = FakeClock()
    gate = ConnectionGate(ConnectionLimits(connections=1, per_peer=1), clock=clock, is_short=lambda: False)
    answer = await ControlServer(tmp_path, (), gate=gate, clock=clock)._answer(text.encode())
    assert (answer.ok, answer.error.startswith("not a control request")) == (False, True)


@attacks
def test_hostile_json_as_line_of_ledger_or_history_is_skipped(text: str, tmp_path: Path) -> None:
    for name in (LEDGER_NAME, HISTORY_NAME):
        (tmp_path / name).write_text(text + "\n")
    assert list(read_ledger(tmp_path)) == []
    assert RunHistory(tmp_path).read() == []


@attacks
def test_hostile_json_as_line_of_usage_is_skipped(text: str, tmp_path: Path) -> None:
    (tmp_path / "1970-01.jsonl").write_text(text + "\n")
    assert list(UsageLedger(tmp_path).read(from_ms=0, to_ms=3_600_000)) == []


@attacks
def test_hostile_json_as_file_of_a_restore_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    journal, offsets, checkpoints = (tmp_path / name for name in ("journal", "offset-map", "checkpoints"))
    for path in (journal, offsets, checkpoints):
        path.write_text(text + "\n")
    with pytest.raises(StateDirError, match=str(journal)):
        Journal.open(journal, {})
    with pytest.raises(StateDirError, match=str(offsets)):
        read_offset_map(offsets, target_cluster="c")
    with pytest.raises(CheckpointFileError, match=str(checkpoints)):
        read_checkpoint_metas(OsDisk(), checkpoints)


@attacks
def test_hostile_json_as_manifest_of_a_restore_proves_no_directory(text: str, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(text)
    assert not has_all_logs(tmp_path, manifest)


@attacks
def test_hostile_json_as_clean_marker_has_no_broker_epoch(text: str) -> None:
    assert parse_broker_epoch(text.encode()) is None


@attacks
def test_hostile_json_as_refusal_of_gcs_is_shortened_in_the_message(text: str) -> None:
    refusal = GcsRefusal(operation="get", bucket="b", key="k", status=400, text=text)
    assert refusal.reasons == frozenset()
    assert len(refusal.message) <= 200


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 3_000 + "]" * 3_000, "a: " + "{b: " * 3_000 + "}" * 3_000, "- " * 3_000 + "a"]
)
def test_configuration_nested_too_deeply_is_one_fault(text: str) -> None:
    document = read_document(text, {})
    ((_, problem),) = document.faults
    assert "nested too deeply" in problem
    assert document.tree == {}


def test_configuration_with_an_endless_number_is_one_fault() -> None:
    document = read_document("a: " + "9" * 5_000, {})
    ((_, problem),) = document.faults
    assert len(problem) < 300
