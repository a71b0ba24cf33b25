"""``tierd man-pages``: write the man pages, for packages."""

from pathlib import Path
from typing import Annotated

import typer

from tierd.cli.main import build_app
from tierd.cli.man_pages import man_pages as pages_of
from tierd.cli.output.printing import print_line
from tierd.version import __version__


def man_pages(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory of the pages, such as /usr/share/man/man1.", file_okay=False),
    ],
) -> None:
    """Write a man page for each command, from the texts of --help.

    Example: tierd man-pages debian/tierd/usr/share/man/man1
    """
    directory.mkdir(parents=True, exist_ok=True)
    pages = pages_of(build_app([], load_all=True), __version__)
    for name, text in pages.items():
        (directory / name).write_text(text)
    print_line(f"{len(pages)} pages in {directory}")
