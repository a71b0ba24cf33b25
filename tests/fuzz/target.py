"""A fuzz target: a decoder, and valid inputs from which few mutations reach all its branches."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that once broke something, or that a real client sent: one folder a target, replayed by every test run."""


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder under test.

    Attributes:
        run: decodes any bytes; raises only bugs: errors that the decoder documents stay inside.
        seeds: valid inputs.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]

    def kept(self) -> list[bytes]:
        """Return the inputs of the corpus."""
        folder = CORPUS / self.name
        return [file.read_bytes() for file in sorted(folder.iterdir())] if folder.is_dir() else []
