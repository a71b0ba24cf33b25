"""The descriptors that this process has open."""

from pathlib import Path


def open_files(place: Path) -> list[str]:
    """Return the paths of the open files at or below ``place``, one for each descriptor.

    The number of all descriptors is no measure for a test: other threads open some, for example the connection of py4j
    when garbage of Spark is collected.
    """
    return [target for target in open_targets() if f"{target}/".startswith(f"{place}/")]


def open_targets() -> list[str]:
    """Return the target of each descriptor: a path, or a kind and an inode as in ``socket:[7]``."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:  # closed since the listing, as the descriptor of the listing itself
            continue
    return found
