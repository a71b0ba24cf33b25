import json
from pathlib import Path

import pytest

from tests.contracts.bodies import content_of
from tests.contracts.remote_storage import rolled
from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.kernels import crc32c
from tierd.model import IndexType
from tierd.remote import SegmentManifest


@pytest.fixture
def manifest(tmp_path: Path) -> SegmentManifest:
    one = rolled(tmp_path, content_of((2 << 20) + 3))
    return SegmentManifest.describe(
        one.metadata, one.data, cluster_id="c", broker_id=3, chunk_size=1 << 20, tierd_version="0.1.0"
    )


def test_it_comes_back_as_it_was_written(manifest: SegmentManifest) -> None:
    assert SegmentManifest.decode(manifest.encode(), key="k") == manifest


def test_checksums_are_those_of_the_bytes(manifest: SegmentManifest) -> None:
    content = content_of((2 << 20) + 3)
    assert manifest.log.crc32c == crc32c(content)
    assert [chunk.crc32c for chunk in manifest.log.chunks] == [
        crc32c(content[at : at + (1 << 20)]) for at in range(0, len(content), 1 << 20)
    ]
    snapshot = manifest.index(IndexType.PRODUCER_SNAPSHOT)
    assert snapshot is not None
    assert snapshot.crc32c == crc32c(b"producer snapshot")
    assert json.loads(manifest.encode())["log"]["crc32c"] == f"{crc32c(content):08x}"


def test_unknown_fields_are_kept(manifest: SegmentManifest) -> None:
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
def test_what_is_no_manifest_is_damage(content: bytes) -> None:
    with pytest.raises((RemoteIntegrityError, RemoteStorageError), match=r"a\.manifest: manifest"):
        SegmentManifest.decode(content, key="a.manifest")


def test_a_field_of_the_wrong_type_is_named(manifest: SegmentManifest) -> None:
    fields = json.loads(manifest.encode())
    fields["log"]["chunks"][1]["crc32c"] = "no hex"
    with pytest.raises(RemoteIntegrityError, match=r"log\.chunks\.1\.crc32c"):
        SegmentManifest.decode(json.dumps(fields).encode(), key="k")
