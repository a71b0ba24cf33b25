"""Damage to files, as disks and crashes cause it."""

from pathlib import Path


def flip_byte(file: Path, *, position: int) -> None:
    """Invert one byte in place; doing it twice undoes it."""
    with file.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)
        stream.seek(position)
        stream.write(bytes([byte[0] ^ 0xFF]))


def cut(file: Path, *, missing_bytes: int) -> bytes:
    """Take bytes off the end and return them."""
    content = file.read_bytes()
    file.write_bytes(content[:-missing_bytes])
    return content[-missing_bytes:]
