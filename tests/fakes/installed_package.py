"""A package as pip installs it into a folder of the path: its source, and the dist-info with its entry points."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLE_BACKEND = Path(__file__).parents[1] / "example_backend"


def install(project: Path, site: Path) -> str:
    """Write the dist-info of ``project`` into ``site``; return the path that finds both, for ``PYTHONPATH``."""
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    write_dist_info(site, declared["name"], declared["version"], declared["entry-points"])
    return os.pathsep.join([str(site), str(project / "src")])


def write_dist_info(site: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Write the files that ``importlib.metadata`` reads of an installed distribution."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in entry_points.items()
    )
    (folder / "entry_points.txt").write_text("\n".join(groups))
