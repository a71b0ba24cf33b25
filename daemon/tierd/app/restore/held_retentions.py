"""HeldRetentions: records of the retentions that tierd holds, in the state directory. Blocking.

::

    <state dir>/held-retention/<topic id>.json    one topic; it goes when the hold is lifted
"""

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tierd.errors import StateDirError
from tierd.files import make_private_directory, open_to_read
from tierd.log import OsDisk, replace_file
from tierd.model import uuid_to_text
from tierd.restore import HeldRetention

_DIRECTORY: Final = "held-retention"
_MAX_BYTES: Final = 1 << 20
_RECORD: Final = TypeAdapter(HeldRetention)


class HeldRetentions:
    """Records of one state directory.

    Raises, from every call:
        StateDirError: the directory cannot be read or written, or a record is damaged.
    """

    def __init__(self, state_dir: Path) -> None:
        """Read and write nothing yet."""
        self._directory = state_dir / _DIRECTORY

    def read(self) -> list[HeldRetention]:
        """Return the records, by topic."""
        try:
            files = sorted(self._directory.glob("*.json"))
        except OSError as error:
            raise self._unusable(self._directory, error) from error
        return sorted(map(self._record, files), key=lambda each: (each.cluster_id, each.topic))

    def find(self, held: HeldRetention) -> HeldRetention | None:
        """Return the record of the topic of ``held``; None without one."""
        file = self.file_of(held)
        return self._record(file) if file.exists() else None

    def keep(self, held: HeldRetention) -> None:
        """Write the record, durably."""
        try:
            make_private_directory(self._directory)
            OsDisk().sync_directory(self._directory.parent)
            replace_file(OsDisk(), self.file_of(held), _RECORD.dump_json(held) + b"\n")
        except OSError as error:
            raise self._unusable(self.file_of(held), error) from error

    def forget(self, held: HeldRetention) -> None:
        """Remove the record; one already gone is no error."""
        try:
            self.file_of(held).unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(self.file_of(held), error) from error

    def file_of(self, held: HeldRetention) -> Path:
        """Return the place of the record."""
        return self._directory / f"{uuid_to_text(held.topic_id)}.json"

    def _record(self, file: Path) -> HeldRetention:
        try:
            with open_to_read(file) as opened:
                return _RECORD.validate_json(opened.read(_MAX_BYTES))
        except OSError as error:
            raise self._unusable(file, error) from error
        except ValidationError as error:
            raise StateDirError(
                f"{file} is damaged", remedy="lift the hold with kafka-configs.sh, then remove the file"
            ) from error

    def _unusable(self, path: Path, error: OSError) -> StateDirError:
        return StateDirError(
            f"{path}: {error.strerror or error}", remedy="let the user of this command read and write state_dir"
        )
