"""Fields of many records brought together, with the twin that pays."""

from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers
from tierd.kernels.choice import CHOICE
from tierd.kernels.columns import RecordFault

_FIELDS_PER_DECODING = 8  # fields that the reference copies in the time that it decodes a record in


def gather(payload: bytes | memoryview, starts: Numbers, sizes: Numbers) -> Gathered:
    """Copy fields behind one another, as Arrow has them; see ``reference.gather``."""
    return CHOICE.for_records(len(sizes) // _FIELDS_PER_DECODING).gather(payload, starts, sizes)


def gather_headers(
    payload: bytes | memoryview, headers_start: Numbers, header_count: Numbers
) -> GatheredHeaders | RecordFault:
    """Copy headers behind one another, as Arrow has them; see ``reference.gather_headers``."""
    kernels = CHOICE.for_records(len(header_count) // _FIELDS_PER_DECODING)
    return kernels.gather_headers(payload, headers_start, header_count)
