"""MemoryStore: a ``RestoreStore`` in a dict, of any kind, with what a crash would leave."""

from pathlib import Path
from typing import Self

from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords


class MemoryStore:
    """Store of a test. Its files are ``durable``: what a crash leaves.

    Attributes:
        content: what a reader of the store sees.
        calls: names of the calls that change something, in order.
        failures: for the name of a call the errors of its next calls.
    """

    def __init__(
        self,
        name: str = "store",
        *,
        persistent: bool = True,
        timestamped: bool = False,
        transactional: bool = False,
    ) -> None:
        self._name = name
        self._persistent = persistent
        self._timestamped = timestamped
        self._transactional = transactional
        self._incarnation = 1
        self._offset: int | None = None
        self._durable: tuple[dict[bytes, bytes], int | None] = ({}, None)
        self.content: dict[bytes, bytes] = {}
        self.batches: list[int] = []
        self.calls: list[str] = []
        self.failures: dict[str, list[Exception]] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def persistent(self) -> bool:
        return self._persistent

    @property
    def timestamped(self) -> bool:
        return self._timestamped

    @property
    def transactional(self) -> bool:
        return self._transactional

    def after_crash(self) -> Self:
        """Return the store as it is opened after a crash."""
        again = type(self)(
            self._name,
            persistent=self._persistent,
            timestamped=self._timestamped,
            transactional=self._transactional,
        )
        if self._persistent:
            again._incarnation = self._incarnation
            again.content, again._offset = dict(self._durable[0]), self._durable[1]
            again._durable = self._durable
        return again

    def put(self, **values: bytes) -> None:
        """Put data that no restore has brought, durably."""
        self.content.update({key.encode(): value for key, value in values.items()})
        self._durable = (dict(self.content), self._offset)

    async def open(self, directory: Path) -> None:
        self._call("open")

    async def close(self, *, clean: bool) -> None:
        self._call("close")
        if clean:
            self._durable = (dict(self.content), self._offset)

    async def wipe(self) -> None:
        self._call("wipe")
        self.content.clear()
        self._offset = None
        self._incarnation += 1
        self._durable = ({}, None)

    async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
        self._call("restore_batch")
        self.batches.append(len(records))
        for key, value in zip(records.keys, records.values, strict=True):
            if key is None:
                raise StoreFailedError(self._name, "a record without a key")
            if value is None:
                self.content.pop(key, None)
            else:
                self.content[key] = value
        if self._transactional:
            self._offset = last_offset
            self._durable = (dict(self.content), self._offset)

    async def stored_offset(self) -> int | None:
        return self._offset

    async def store_id(self) -> str | None:
        return f"{self._name} {self._incarnation}" if self._persistent else None

    async def is_empty(self) -> bool:
        return not self.content

    async def flush(self) -> None:
        self._call("flush")
        self._durable = (dict(self.content), self._offset)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if errors := self.failures.get(name):
            raise errors.pop(0)
