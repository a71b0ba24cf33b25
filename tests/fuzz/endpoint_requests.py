"""Targets: requests of clients, as the read endpoint reads them."""

from contextlib import suppress

from tests.fuzz.target import Target
from tests.serve.kafka.kio_messages import all_request_types, frame, sample
from tierd.errors import DamagedMessageError
from tierd.serve.kafka.wire.request_frame import ITEM_BYTES, MAX_ITEMS, checked_request, read_head


def _request(data: bytes) -> None:
    """Read a frame; its memory was estimated before it was decoded."""
    with suppress(DamagedMessageError):
        head = read_head(data)
        if head.is_supported:
            checked = checked_request(head, data)
            assert len(data) <= checked.memory_bytes <= len(data) + MAX_ITEMS * ITEM_BYTES
            assert type(checked.decoded()).__version__ == head.version


def _seeds() -> list[bytes]:
    return [frame(sample(request, items=items)) for request in all_request_types() for items in (0, 2)]


TARGETS = (Target("endpoint-request", _request, _seeds),)
"""As ``tests.fuzz`` lists them."""
