import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.contracts.remote_storage import rolled
from tests.fakes.remote_segments import PARTITION
from tests.fakes.transforms import ring
from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.kernels import crc32c
from tierd.model import IndexType
from tierd.remote import SegmentManifest
from tierd.remote.segments.manifest import Transformation
from tierd.remote.segments.open_segment import authenticated
from tierd.remote.transform.binding import SegmentBinding
from tierd.remote.transform.chunk_layout import ChunkLayout, StoredChunk
from tierd.remote.transform.cipher import SegmentCipher
from tierd.testing import content_of


@pytest.fixture
def manifest(tmp_path: Path) -> SegmentManifest:
    one = rolled(tmp_path, content_of((2 << 20) + 3))
    return SegmentManifest.describe(
        one.metadata, one.data, cluster_id="c", broker_id=3, chunk_size=1 << 20, tierd_version="0.1.0"
    )


def test_manifest_is_decoded_as_it_was_encoded(manifest: SegmentManifest) -> None:
    assert SegmentManifest.decode(manifest.encode(), key="k") == manifest


def test_checksums_in_the_manifest_are_those_of_the_bytes(manifest: SegmentManifest) -> None:
    content = content_of((2 << 20) + 3)
    assert manifest.log.crc32c == crc32c(content)
    assert [chunk.crc32c for chunk in manifest.log.chunks] == [
        crc32c(content[at : at + (1 << 20)]) for at in range(0, len(content), 1 << 20)
    ]
    snapshot = manifest.index(IndexType.PRODUCER_SNAPSHOT)
    assert snapshot is not None
    assert snapshot.crc32c == crc32c(b"producer snapshot")
    assert json.loads(manifest.encode())["log"]["crc32c"] == f"{crc32c(content):08x}"


def test_unknown_fields_of_a_manifest_are_kept(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    fields["colour"] = {"hue": 7}
    fields["log"]["storage"] = "cold"
    fields["indexes"]["bloom"] = {"position": 0, "size_bytes": 0, "crc32c": "00000000"}
    decoded = SegmentManifest.decode(json.dumps(fields).encode(), key="k")
    assert json.loads(decoded.encode()) == fields


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_version_is_refused(manifest: SegmentManifest, version: object) -> None:
    fields = json.loads(manifest.encode()) | {"format_version": version}
    with pytest.raises(RemoteStorageError, match="format_version") as refused:
        SegmentManifest.decode(json.dumps(fields).encode(), key="a.manifest")
    assert "a.manifest" in str(refused.value)
    assert "version" in refused.value.remedy


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"format_version": 1}', b"\xff\xfe"])
def test_content_that_is_no_manifest_is_damage(content: bytes) -> None:
    with pytest.raises((RemoteIntegrityError, RemoteStorageError), match=r"a\.manifest: manifest"):
        SegmentManifest.decode(content, key="a.manifest")


def test_a_field_of_the_wrong_type_is_named(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["chunks"][1]["crc32c"] = "no hex"
    with pytest.raises(RemoteIntegrityError, match=r"log\.chunks\.1\.crc32c"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")


# ------------------------------------------------------------ transformed segments


DATA_KEY = bytes(range(32))
BINDING = SegmentBinding("c", PARTITION.topic_id, 0, UUID(int=0xABC), 0, 9)
CIPHER = SegmentCipher(DATA_KEY, BINDING)


@pytest.fixture
def sealed(tmp_path: Path) -> SegmentManifest:
    """Return the manifest of an encrypted segment of 2 chunks, the first of them compressed."""
    one = rolled(tmp_path, content_of((1 << 20) + 3))
    chunks = (StoredChunk(1000 + 16, 1, is_compressed=True), StoredChunk(3 + 16, 2))
    done = Transformation(ChunkLayout((1 << 20) + 3, 1 << 20, chunks), 3, ring().wrap(DATA_KEY, BINDING))
    return SegmentManifest.describe(
        replace(one.metadata, segment=replace(one.metadata.segment, id=UUID(int=0xABC))),
        one.data,
        cluster_id="c",
        broker_id=3,
        chunk_size=1 << 20,
        tierd_version="0.1.0",
        transformation=done,
    ).sealed(CIPHER)


def test_a_sealed_manifest_comes_back_and_is_authentic(sealed: SegmentManifest) -> None:
    content = sealed.encode()
    decoded = SegmentManifest.decode(content, key="k")
    assert decoded == sealed
    assert decoded.encode() == content
    decoded.require_authentic(CIPHER, content, key="k")
    assert decoded.binding() == BINDING
    assert decoded.is_transformed
    assert [chunk.is_compressed for chunk in decoded.layout().chunks] == [True, False]
    fields = json.loads(content)
    assert fields["compression"] == {"type": "zstd", "level": 3}
    assert [chunk.get("compressed") for chunk in fields["log"]["chunks"]] == [True, None]


def test_sealed_manifest_with_any_flipped_bit_is_refused(sealed: SegmentManifest) -> None:
    content = sealed.encode()
    for at in range(len(content) * 8):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(RemoteStorageError):
            _believe(bytes(changed))
    _believe(content)


def _believe(content: bytes) -> None:
    manifest = SegmentManifest.decode(content, key="k")
    if manifest.encryption is None:
        raise RemoteIntegrityError("the metadata says that it is encrypted")
    authenticated(manifest, content, BINDING, ring(), key="k")


def test_the_key_may_be_wrapped_anew_without_the_tag(sealed: SegmentManifest) -> None:
    assert sealed.encryption is not None
    encryption = sealed.encryption.rewrapped(ring("new").wrap(DATA_KEY, BINDING))
    content = sealed.model_copy(update={"encryption": encryption}).encode()
    assert json.loads(content)["encryption"]["key_id"] == "new"
    SegmentManifest.decode(content, key="k").require_authentic(CIPHER, content, key="k")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("compression", {"type": "lz5"}, "compression type 'lz5'"),
        ("encryption", {"algorithm": "ROT13"}, "encryption algorithm 'ROT13'"),
        ("format_version", True, "format_version True"),
    ],
)
def test_codec_or_algorithm_of_a_later_version_is_refused_by_name(
    manifest: SegmentManifest, field: str, value: object, named: str
) -> None:
    fields = json.loads(manifest.encode()) | {field: value}
    with pytest.raises(RemoteStorageError, match=named) as refused:
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")
    assert not isinstance(refused.value, RemoteIntegrityError)
    assert "version" in refused.value.remedy


@pytest.mark.parametrize("name", ["compression", "encryption"])
def test_a_field_that_decides_how_to_read_must_be_there(manifest: SegmentManifest, name: str) -> None:
    fields = json.loads(manifest.encode())
    del fields[name]
    with pytest.raises(RemoteIntegrityError, match=f"manifest field {name}"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")


def test_numbers_that_do_not_fit_together_are_damage(manifest: SegmentManifest) -> None:
    for change, problem in (
        ({"size_bytes": 5}, "chunk 0 stores 5 bytes in 1048576"),
        ({"size_bytes": 2 << 20}, "3 chunks of 1048576 bytes for 2097152 bytes"),
        ({"log": {"size_bytes": 7}}, "the log has 7 bytes"),
        ({"log": {"chunk_size_bytes": 1 << 19}}, "chunk 0 stores 524288 bytes in 1048576"),
        ({"log": {"chunks": []}}, "0 chunks"),
    ):
        fields = json.loads(manifest.encode())
        for name, value in change.items():
            fields[name] = fields[name] | value if isinstance(value, dict) else value
        with pytest.raises(RemoteIntegrityError, match=problem):
            SegmentManifest.decode(json.dumps(fields).encode(), key="k")


def test_manifest_is_judged_by_the_same_rules_when_it_is_written_and_when_it_is_read(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    end = fields["end_offset"]
    for change, problem in (
        ({"segment_leader_epochs": [[0, end + 1]]}, "leader epochs 0 from"),
        ({"segment_leader_epochs": []}, "at least one leader epoch"),
        ({"start_offset": end + 1}, "are no range"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
    ):
        with pytest.raises(RemoteIntegrityError, match=problem):
            SegmentManifest.decode(json.dumps(fields | change).encode(), key="k")
    inside = fields | {"segment_leader_epochs": [[0, end]]}
    assert SegmentManifest.decode(json.dumps(inside).encode(), key="k").segment_leader_epochs == ((0, end),)


def test_a_compressed_chunk_in_a_segment_that_is_not_is_damage(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["chunks"][0]["compressed"] = True
    with pytest.raises(RemoteIntegrityError, match="chunk 0 is compressed, and the segment is not"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")


def test_a_name_that_stands_twice_is_damage(manifest: SegmentManifest) -> None:
    content = manifest.encode().replace(b'"partition":0', b'"partition":0,"partition":0')
    with pytest.raises(RemoteIntegrityError, match="stands twice"):
        SegmentManifest.decode(content, key="k")


def test_deeply_nested_manifest_is_damage() -> None:
    with pytest.raises(RemoteIntegrityError, match="is not JSON"):
        SegmentManifest.decode(b"[" * 100_000, key="k")


@pytest.mark.parametrize("crc", ["0x123456", "12345678 ", "1234_678", "ABCDEF01", "123456789"])
def test_a_checksum_has_one_form_only(manifest: SegmentManifest, crc: str) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["crc32c"] = crc
    with pytest.raises(RemoteIntegrityError, match=r"log\.crc32c"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")


def test_a_manifest_from_before_compression_and_encryption_is_read(manifest: SegmentManifest) -> None:
    """As tierd 0.1.0 wrote it: no chunk says whether it is compressed."""
    content = (
        b'{"format_version":1,"cluster_id":"c","topic":"orders","topic_id":"AAAAAAAAAAAAAAAAAAAABw","partition":0,'
        b'"segment_id":"AAAAAAAAAAAAAAAAAAAKvA","start_offset":0,"end_offset":9,"segment_leader_epochs":[[0,0]],'
        b'"leader_epoch":5,"broker_id":1,"session_id":"00000000-0000-0000-0000-000000005e55","copy_started_ms":1,'
        b'"max_timestamp_ms":-1,"record_count":10,"batch_count":1,"size_bytes":3,"txn_index_empty":false,'
        b'"log":{"size_bytes":3,"crc32c":"00000001","chunk_size_bytes":4194304,"chunks":[{"size_bytes":3,'
        b'"crc32c":"00000001"}]},"indexes":{"offset":{"position":0,"size_bytes":12,"crc32c":"00000002"}},'
        b'"compression":{"type":"none"},"encryption":null,"replaces":[],"tierd_version":"0.1.0"}\n'
    )
    decoded = SegmentManifest.decode(content, key="k")
    assert decoded.encode() == content
    assert not decoded.is_transformed
    assert decoded.indexes_size_bytes == 12


@pytest.mark.parametrize("times", [(5, 4), (5, None), (None, 5)])
def test_timestamps_that_are_no_range_are_damage(
    manifest: SegmentManifest, times: tuple[int | None, int | None]
) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["chunks"][0] |= {"min_timestamp_ms": times[0], "max_timestamp_ms": times[1]}
    with pytest.raises(RemoteIntegrityError, match="chunk 0 has records from"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")


def test_timestamps_that_are_null_are_unknown(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["chunks"][0] |= {"min_timestamp_ms": None, "max_timestamp_ms": None}
    decoded = SegmentManifest.decode(json.dumps(fields).encode(), key="k")
    assert decoded.log.chunks[0].timestamps is None
    assert json.loads(decoded.encode()) == fields
