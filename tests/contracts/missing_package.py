"""The error of a backend whose client library is an extra that is not installed."""

import asyncio
import subprocess
import sys
import textwrap

from tierd.errors import install_extra

OPENING = """
    import asyncio, sys
    sys.modules["{package}"] = None
    from tierd.errors import MetadataError
    from tierd.metadata.kv import *

    try:
        asyncio.run({opening})
    except MetadataError as error:
        print(error, error.remedy, sep="\\n")
"""


async def missing_package_is_named(extra: str, package: str, opening: str) -> None:
    """Open a store in a process without ``package``; check that the error names the package and the extra."""
    program = textwrap.dedent(OPENING.format(package=package, opening=opening))
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    cause, remedy = ended.stdout.splitlines()
    assert package in cause
    assert remedy == install_extra(extra)
    assert remedy.endswith(f"pip install --require-hashes -r requirements/base.txt -r requirements/{extra}.txt")
