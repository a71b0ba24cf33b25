"""``tierd metadata export`` and ``tierd metadata import``: the metadata of a cluster, from one store to another."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from tierd.app import Deployment, export_metadata, import_metadata, run_in_loop
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption
from tierd.cli.output.printing import print_exactly, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.errors import NotConfirmedError, StateDirError
from tierd.files import open_regular


def export(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="File to write, which must not exist; default: standard output."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write all rows of the cluster in the metadata store, as JSON lines that tierd metadata import reads.

    The daemon may run: each partition is written as it is at one moment. The file gets its name when it is
    complete.

    Example: tierd metadata export metadata.jsonl
    """
    deployment = Deployment(begin(config), config)
    with progress_line("exporting") as report_progress, _writer(file) as write:
        run_in_loop(export_metadata(deployment, write, on_progress=report_progress))


def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file that tierd metadata export wrote.", exists=True, dir_okay=False),
    ],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Fill the configured, empty metadata store from an export of another store of any kind.

    The whole file is checked first, and every partition is read back after it was written. After an interruption, run
    the same command again. A store that is not empty is refused with exit code 4. Stop the daemons of both stores
    first.

    Example: tierd metadata import metadata.jsonl --config postgres.yaml
    """
    deployment = Deployment(begin(config), config)
    with progress_line("importing") as report_progress:
        counts = run_in_loop(import_metadata(deployment, file, on_progress=report_progress))
    before = f", {counts.present} of them were there already" if counts.present else ""
    print_line(f"{counts.partitions} partitions with {counts.rows} rows imported{before}")


@contextlib.contextmanager
def _writer(file: Path | None) -> Iterator[Callable[[str], object]]:
    if file is None:
        yield print_exactly
        return
    if file.exists():
        raise NotConfirmedError(f"{file} exists already", remedy="name another file")
    draft = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        descriptor = open_regular(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL
        )  # the export contains the keys of open erasures
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as lines:
            yield lines.write
            lines.flush()
            os.fsync(lines.fileno())
        file.hardlink_to(draft)  # unlike a rename, a link never replaces a file
        _sync_directory(file.parent)
    except FileExistsError as error:
        raise NotConfirmedError(f"{file} exists already", remedy="name another file") from error
    except OSError as error:
        cause = f"{file} cannot be written: {error.strerror or error}"
        raise StateDirError(cause, remedy="free space, or name a file that this user may write") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
