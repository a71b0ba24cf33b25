"""Requests of real clients, which ``tests.fuzz.record_requests`` has recorded, are seeds of their decoder."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS
from tierd.serve.kafka.wire.request_frame import checked_request, read_head

TARGET = "endpoint-request"
CLIENTS = {
    *("librdkafka", "aiokafka", "franz-go", "kcat", "spark", "mirror-maker"),
    *(f"{program}-{version}" for program in ("console", "tools", "streams") for version in ("3.9.2", "4.3.1")),
}


class RecordedRequest(NamedTuple):
    """Frame of a client; the name of its file is ``<client>_<request>_v<version>``."""

    client: str
    api: str
    version: int
    frame: bytes

    @classmethod
    def read(cls, file: Path) -> "RecordedRequest":
        """Return the request in a file of the corpus."""
        client, api, version = file.name.split("_")
        return cls(client, api, int(version.removeprefix("v")), file.read_bytes())


RECORDED = [RecordedRequest.read(file) for file in sorted((CORPUS / TARGET).glob("*_*_v*"))]


def test_corpus_has_requests_of_every_client() -> None:
    assert {each.client for each in RECORDED} == CLIENTS
    assert {each.client for each in RECORDED if each.api == "Fetch"} == CLIENTS
    assert {each.frame for each in RECORDED} <= {*TARGETS[TARGET].kept()}


@pytest.mark.parametrize("request_", RECORDED, ids=lambda each: f"{each.client}_{each.api}_v{each.version}")
def test_recorded_request_is_decoded_in_its_version(request_: RecordedRequest) -> None:
    head = read_head(request_.frame)
    assert (head.api.name, head.version) == (request_.api, request_.version)
    assert head.is_supported
    assert type(checked_request(head, request_.frame).decoded()).__version__ == request_.version
