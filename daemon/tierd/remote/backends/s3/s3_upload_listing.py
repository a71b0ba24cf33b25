"""The listing of unfinished uploads, page by page, with keys that the store has escaped for XML.

XML 1.0 has no way to write some characters that a key may have, a control character for one. A single upload under such
a key would make every listing unreadable. The client library asks for escaped keys in listings of objects and of
versions, and not here.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import (
        ListMultipartUploadsOutputTypeDef,
        ListMultipartUploadsRequestTypeDef,
    )


async def upload_pages(
    client: "S3Client", *, bucket: str, prefix: str
) -> "AsyncGenerator[ListMultipartUploadsOutputTypeDef, None]":
    """Yield every page of the uploads under ``prefix``; their keys are as ``key_in`` takes them."""
    request: ListMultipartUploadsRequestTypeDef = {"Bucket": bucket, "Prefix": prefix, "EncodingType": "url"}
    last = ("", "")
    while True:
        page = await client.list_multipart_uploads(**request)
        yield page
        markers = key_in(page, page.get("NextKeyMarker", "")), page.get("NextUploadIdMarker", "")
        if not page.get("IsTruncated") or markers in (last, ("", "")):
            return
        last = request["KeyMarker"], request["UploadIdMarker"] = markers


def key_in(page: "ListMultipartUploadsOutputTypeDef", key: str) -> str:
    """Return the key that a page has as ``key``; a store that says nothing of an encoding escapes nothing."""
    return unquote_plus(key) if page.get("EncodingType") == "url" else key
