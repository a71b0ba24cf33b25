"""Two fillings of one store."""

import pytest

from tierd.errors import MetadataFillingRefusedError
from tierd.metadata import FillingSource, MemoryKeyValueStore, MetadataKeyFactory, StoreFilling

KEYS = MetadataKeyFactory("cluster")


async def test_second_of_two_fillings_that_begin_at_one_time_is_refused() -> None:
    store = MemoryKeyValueStore()
    first = StoreFilling(store, KEYS, FillingSource("import", "a"))
    second = StoreFilling(store, KEYS, FillingSource("rebuild", "b"))
    assert not await first.is_begun()
    assert not await second.is_begun()
    await first.begin()
    with pytest.raises(MetadataFillingRefusedError, match="import from a"):
        await second.begin()
    await first.begin()
    assert await first.is_begun()
