"""SBOM and licence list of what is installed with tierd.

The SBOM is CycloneDX 1.6, made and validated by cyclonedx-bom. The list is made from it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.packaging.dist import ROOT

SBOM: Final = "tierd.cdx.json"
LICENCES: Final = "licences.txt"
_HEAD: Final = """\
Python packages that are installed with tierd. Licences are those that each package declares: SPDX expressions, and
classifiers; a package that declares several has them one after the other. Files are below the folder of the packages.

"""


def write_bill(python: Path, folder: Path, *, written_s: int) -> None:
    """Write the SBOM and the licence list of the environment of an interpreter into ``folder``.

    Args:
        python: the interpreter of the environment.
        folder: is made if it does not exist.
        written_s: time in the SBOM, seconds since 1970.

    Raises:
        CalledProcessError: the environment cannot be read, or the SBOM breaks its schema.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--spec-version=1.6"]
    project = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type=application", "--validate"]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(written_s)}
    environment.pop("PYTHONPATH", None)  # is for this Python, not for the other one
    subprocess.run([*command, *project, "--output-file", str(folder / SBOM), str(python)], check=True, env=environment)
    bill = json.loads((folder / SBOM).read_text())
    (place,) = python.parents[1].glob("lib/python3.*/site-packages")
    (folder / LICENCES).write_text(licence_list(bill, place))


def licence_list(bill: dict[str, Any], packages: Path) -> str:
    """Return the list: for each component of the SBOM a line with name, version and licences, then its licence files.

    Args:
        bill: the SBOM, as JSON.
        packages: folder where the components are installed.
    """
    lines = []
    for component in components_of(bill):
        licences = "; ".join(licences_of(component)) or "not declared"
        lines.append(f"{component['name']} {component['version']}: {licences}\n")
        lines.extend(f"    {file}\n" for file in _licence_files(component, packages))
    return _HEAD + "".join(lines)


def components_of(bill: dict[str, Any]) -> list[dict[str, Any]]:
    """Return tierd and the other components of an SBOM, by name."""
    return sorted([bill["metadata"]["component"], *bill["components"]], key=lambda each: str(each["name"]).lower())


def licences_of(component: dict[str, Any]) -> list[str]:
    """Return the licences that a component of an SBOM declares: expressions, identifiers, or names."""
    found = []
    for each in component.get("licenses", []):
        licence = each.get("license", {})
        found.append(each.get("expression") or licence.get("id") or licence["name"].rpartition(" :: ")[2])
    return found


def _licence_files(component: dict[str, Any], packages: Path) -> Iterator[str]:
    stem = component["name"].replace("-", "_").replace(".", "_").lower()
    for info in packages.glob(f"*-{component['version']}.dist-info"):
        if info.name.split("-")[0].replace(".", "_").lower() == stem:
            named = ("licen[cs]e*", "LICEN[CS]E*", "COPYING*", "NOTICE*")
            found = {file for pattern in named for file in info.rglob(pattern) if file.is_file()}
            found |= {file for file in info.glob("licenses/**/*") if file.is_file()}
            yield from sorted(str(file.relative_to(packages)) for file in found)
