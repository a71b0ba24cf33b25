"""Archived objects of S3: states from listings and descriptions."""

import pytest

from tests.remote.backends.s3.s3_stores import s3_store
from tests.remote.backends.s3.scripted_s3 import Answer, scripted_s3
from tierd.remote import ArchiveState
from tierd.remote.backends.s3.s3_reading import described_state, listed_state

OVER = 'ongoing-request="false", expiry-date="Fri, 21 Dec 2029 00:00:00 GMT"'
UNDER_WAY = 'ongoing-request="true"'


@pytest.mark.parametrize("storage_class", ["", "STANDARD", "STANDARD_IA", "GLACIER_IR", "EXPRESS_ONEZONE"])
def test_object_of_a_class_without_archives_is_readable(storage_class: str) -> None:
    assert listed_state(storage_class) is ArchiveState.READABLE
    assert described_state(storage_class, archive_status="", restore="") is ArchiveState.READABLE


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
def test_object_of_an_archive_is_readable_while_its_thawed_copy_lasts(storage_class: str) -> None:
    assert listed_state(storage_class) is ArchiveState.UNKNOWN
    assert described_state(storage_class, archive_status="", restore="") is ArchiveState.ARCHIVED
    assert described_state(storage_class, archive_status="", restore=UNDER_WAY) is ArchiveState.THAWING
    assert described_state(storage_class, archive_status="", restore=OVER) is ArchiveState.READABLE


def test_object_with_archive_tiers_is_archived_only_in_these_tiers() -> None:
    tiers = "INTELLIGENT_TIERING"
    assert listed_state(tiers) is ArchiveState.UNKNOWN
    assert described_state(tiers, archive_status="", restore="") is ArchiveState.READABLE
    assert described_state(tiers, archive_status="ARCHIVE_ACCESS", restore="") is ArchiveState.ARCHIVED
    assert described_state(tiers, archive_status="ARCHIVE_ACCESS", restore=UNDER_WAY) is ArchiveState.THAWING


async def test_listing_and_description_have_class_and_state() -> None:
    async with scripted_s3() as script:
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>7</Size><LastModified>2026-07-01T00:00:00.000Z</LastModified>"
            f"<StorageClass>{storage_class}</StorageClass></Contents>"
            for key, storage_class in (("a", "STANDARD"), ("b", "GLACIER"))
        )
        listed = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        script.answer("list", Answer(200, listed))
        told = {"Content-Length": "7", "x-amz-storage-class": "INTELLIGENT_TIERING"}
        script.answer("head", Answer(200, "", {**told, "x-amz-archive-status": "DEEP_ARCHIVE_ACCESS"}))
        store = s3_store(
            bucket="tier",
            endpoint_url=script.endpoint_url,
            region="us-east-1",
            access_key_id="key",
            secret_access_key="secret",
            path_style=True,
        )
        try:
            found = await store.list_objects("")
            assert [(info.storage_class, info.archive) for info in found] == [
                ("STANDARD", ArchiveState.READABLE),
                ("GLACIER", ArchiveState.UNKNOWN),
            ]
            described = await store.head("a")
            assert described.storage_class == "INTELLIGENT_TIERING DEEP_ARCHIVE_ACCESS"
            assert described.archive is ArchiveState.ARCHIVED
        finally:
            await store.close()
