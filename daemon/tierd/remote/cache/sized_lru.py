"""SizedLru: entries, their sizes, and the order in which they were used. Decisions only, no files."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class SizedLru(Generic[Key]):
    """Keys and sizes in order of use, within ``capacity_bytes``."""

    def __init__(self, capacity_bytes: int, entries: Iterable[tuple[Key, int]] = ()) -> None:
        """Begin with ``entries``, those used longest ago first."""
        self.capacity_bytes = capacity_bytes
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        self.size_bytes = 0
        for key, size in entries:
            self.add(key, size)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: Key) -> bool:
        return key in self._sizes

    def __iter__(self) -> Iterator[Key]:
        return iter(self._sizes)

    def add(self, key: Key, size_bytes: int) -> None:
        """Enter or replace ``key`` as the one used last."""
        self.discard(key)
        self._sizes[key] = size_bytes
        self.size_bytes += size_bytes

    def use(self, key: Key) -> bool:
        """Note that ``key`` was used just now; False when it is not there."""
        if key not in self._sizes:
            return False
        self._sizes.move_to_end(key)
        return True

    def discard(self, key: Key) -> None:
        """Forget ``key``, if it is there."""
        self.size_bytes -= self._sizes.pop(key, 0)

    def evict(self) -> list[Key]:
        """Forget as many entries, those used longest ago first, as do not fit; return them."""
        evicted: list[Key] = []
        while self.size_bytes > self.capacity_bytes:
            key, size = self._sizes.popitem(last=False)
            self.size_bytes -= size
            evicted.append(key)
        return evicted
