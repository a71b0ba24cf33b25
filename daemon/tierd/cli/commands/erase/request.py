"""``tierd erase request``: file a request to erase the records of keys from the tier of a partition."""

import base64
import binascii
from pathlib import Path
from typing import Annotated, Final

import typer

from tierd.app import Deployment, compact, file_erasure, read_erasure, run_in_loop, step_erasures
from tierd.cli.erasures import print_erasure, print_until_done, user_and_host
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionArgument
from tierd.cli.output.printing import print_error
from tierd.cli.output.progress_line import progress_line
from tierd.cli.session import begin
from tierd.model import TopicPartition
from tierd.serve import FileErasureRequest

_MOST_RUNS: Final = 5  # of --now: a compaction leaves out what is too young for it, and an erasure follows


def request(
    partition: PartitionArgument,
    *,
    key: Annotated[list[str] | None, typer.Option("--key", metavar="TEXT", help="A key, as UTF-8 text.")] = None,
    key_base64: Annotated[
        list[str] | None, typer.Option("--key-base64", metavar="B64", help="A key, as base64 of its bytes.")
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(
            "--keys-file", metavar="FILE", help="A file of keys, one on each line, as UTF-8 text.", dir_okay=False
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason of the request, for the report.")
    ] = "",
    now: Annotated[
        bool, typer.Option("--now", help="Begin a run at once, and delete the replaced segments without expire.grace.")
    ] = False,
    remove_unread: Annotated[
        bool,
        typer.Option(
            "--remove-unread",
            help="Remove whole batches that unpack to more than tierd opens, since the keys may be in them. "
            "All their records are lost.",
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Erase every record with one of these keys from the tier of a partition, and keep a report as proof.

    The request is applied by the next run (tierd compact --once, or a scheduled run). The request is done when no
    readable segment, object, older version or cache of this host holds such a record. The broker's own log is not
    touched. With --now the exit code is 1 while the request is not done.

    Examples:
        tierd erase request orders-0 --key alice --reason "ticket 17"

        tierd erase request orders-0 --keys-file keys.txt --now
    """
    keys = _keys(key or [], key_base64 or [], keys_file)
    if not keys:
        raise typer.BadParameter("name the keys to erase: --key, --key-base64 or --keys-file")
    deployment, name = Deployment(begin(config), config), TopicPartition.parse(partition)
    wanted = FileErasureRequest(
        partition=name,
        keys=tuple(keys),
        by=user_and_host(),
        reason=reason,
        at_once=now,
        removes_unread=remove_unread,
    )
    filed = run_in_loop(file_erasure(deployment, wanted))
    if not now:
        print_erasure(filed, as_json=as_json)
        return
    try:
        _apply(deployment, name, filed.request_id)
    except BaseException:
        print_error(f"tierd: request {filed.request_id} is filed all the same; the next run applies it")
        raise
    print_until_done(run_in_loop(read_erasure(deployment, filed.request_id)), as_json=as_json)


def _keys(texts: list[str], encoded: list[str], file: Path | None) -> list[bytes]:
    keys = [text.encode("utf-8", "surrogateescape") for text in texts]
    for each in encoded:
        try:
            keys.append(base64.b64decode(each, validate=True))
        except binascii.Error as error:
            raise typer.BadParameter(f"{each!r} is not base64: {error}") from error
    if file is not None:
        try:
            keys += [line for line in file.read_bytes().splitlines() if line]
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}") from error
        if not keys:
            raise typer.BadParameter(f"{file} has no key in it")
    return keys


def _apply(deployment: Deployment, name: TopicPartition, request_id: str) -> None:
    """Run and step until the request is done, or until a run brings it no further."""
    runs = -1
    for _ in range(_MOST_RUNS):
        run_in_loop(step_erasures(deployment, [name]))
        report = run_in_loop(read_erasure(deployment, request_id))
        searched = len(report.runs)
        if report.phase != "searching" or searched == runs:
            return
        runs = searched
        with progress_line("erase") as report_progress:
            run_in_loop(compact(deployment, [name], on_progress=report_progress))
