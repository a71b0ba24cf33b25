"""``tierd erase``: requests to erase the records of keys from the tier, what became of them, and the proof."""

import base64
import binascii
import getpass
import socket
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Final, cast

import typer
from pydantic import JsonValue

from tierd.app import (
    attest_erasure,
    cancel_erasure,
    compact,
    file_erasure,
    list_erasures,
    read_erasure,
    run_in_loop,
    step_erasures,
)
from tierd.cli.display import plain_table, print_table
from tierd.cli.erasures import print_report, utc
from tierd.cli.failures import ExitCode
from tierd.cli.json_lists import print_list
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption
from tierd.cli.printing import print_error, print_json, print_line
from tierd.cli.progress import progress_line
from tierd.cli.session import begin
from tierd.config import TierdConfig
from tierd.model import TopicPartition

Facts = dict[str, JsonValue]
_MOST_RUNS: Final = 5  # of --now: a compaction leaves out what is too young for it, and an erasure follows


def erase(
    partition: Annotated[
        str | None, typer.Argument(metavar="[TP]", help="A partition, named as its directory is: topic-partition.")
    ] = None,
    *,
    key: Annotated[list[str] | None, typer.Option("--key", metavar="TEXT", help="A key, as UTF-8 text.")] = None,
    key_base64: Annotated[
        list[str] | None, typer.Option("--key-base64", metavar="B64", help="A key, as base64 of its bytes.")
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option("--keys-file", metavar="FILE", help="A file of keys, one a line, as UTF-8 text.", dir_okay=False),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the report.")] = "",
    now: Annotated[
        bool, typer.Option("--now", help="Begin a run at once, and remove what it replaces without expire.grace.")
    ] = False,
    remove_unread: Annotated[
        bool,
        typer.Option(
            "--remove-unread",
            help="Remove whole batches that unpack to more than tierd opens, since the keys may be in them. "
            "All their records are lost.",
        ),
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the requests, of TP or of all.")] = False,
    report: Annotated[
        str | None, typer.Option("--report", metavar="ID", help="Say what was done for a request.")
    ] = None,
    cancel: Annotated[str | None, typer.Option("--cancel", metavar="ID", help="Give a request up.")] = None,
    attest: Annotated[
        str | None,
        typer.Option("--attest", metavar="ID", help="Say, with --reason, that no older versions of objects are left."),
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Take open requests, of TP or of all, a step further.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Erase every record that has one of these keys from the tier of a partition, and prove it.

    The request is applied by the next run (tierd compact --once, or a scheduled one). It is done when no readable
    segment, object, older version or cache of this host holds such a record. The broker's own log is not touched.
    Exits with 1 while a request that is reported, or was begun with --now, is not done.

    Examples: tierd erase orders-0 --key alice --reason "ticket 17", tierd erase --list, tierd erase --report ID
    """
    keys = _keys(key or [], key_base64 or [], keys_file)
    chosen = [bool(keys), listing, report is not None, cancel is not None, attest is not None, step]
    if sum(chosen) != 1:
        raise typer.BadParameter("name keys to erase, or say one of --list, --report, --cancel, --attest and --step")
    if remove_unread and not keys:
        raise typer.BadParameter("--remove-unread belongs to a request: name its keys")
    if bool(keys) and partition is None:
        raise typer.BadParameter("name the partition that the keys are to be erased from")
    settings = begin(config)
    lists = partial(_print_list, as_json=as_json, as_object=as_object)
    as_json = as_json or as_object  # where the answer is no list it is one object
    name = None if partition is None else TopicPartition.parse(partition)
    if name is not None and keys:
        filing = file_erasure(
            settings, config, name, keys, by=_person(), reason=reason, at_once=now, removes_unread=remove_unread
        )
        _file(settings, config, name, filing, now=now, as_json=as_json)
    elif report is not None:
        _answer(run_in_loop(read_erasure(settings, config, report)), as_json=as_json, must_be_done=True)
    elif cancel is not None:
        _answer(run_in_loop(cancel_erasure(settings, config, cancel)), as_json=as_json)
    elif attest is not None:
        if not reason:
            raise typer.BadParameter("say with --reason how that was found out")
        attested = attest_erasure(settings, config, attest, by=_person(), statement=reason)
        _answer(run_in_loop(attested), as_json=as_json)
    elif step:
        lists(run_in_loop(step_erasures(settings, config, [name] if name else [])))
    else:
        lists(run_in_loop(list_erasures(settings, config, name)))


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


def _file(
    settings: TierdConfig,
    config: Path,
    name: TopicPartition,
    filing: Coroutine[object, object, Facts],
    *,
    now: bool,
    as_json: bool,
) -> None:
    filed = run_in_loop(filing)
    if not now:
        _answer(filed, as_json=as_json)
        return
    request_id = str(filed["request_id"])
    try:
        _apply(settings, config, name, request_id)
    except BaseException:
        print_error(f"tierd: request {request_id} is filed all the same; the next run applies it")
        raise
    _answer(run_in_loop(read_erasure(settings, config, request_id)), as_json=as_json, must_be_done=True)


def _apply(settings: TierdConfig, config: Path, name: TopicPartition, request_id: str) -> None:
    """Run and step until the request is done, or no run gets it on."""
    runs = -1
    for _ in range(_MOST_RUNS):
        run_in_loop(step_erasures(settings, config, [name]))
        facts = run_in_loop(read_erasure(settings, config, request_id))
        searched = len(cast("list[Facts]", facts["runs"]))
        if facts["phase"] != "searching" or searched == runs:
            return
        runs = searched
        with progress_line("erase") as tell:
            run_in_loop(compact(settings, config, [name], tell=tell))


def _answer(facts: Facts, *, as_json: bool, must_be_done: bool = False) -> None:
    if as_json:
        print_json(facts)
    else:
        print_report(facts)
    if must_be_done and facts["phase"] != "done":
        raise typer.Exit(ExitCode.NO)


def _print_list(found: list[Facts], *, as_json: bool, as_object: bool) -> None:
    if as_json or as_object:
        print_list(found, as_object=as_object)
        return
    table = plain_table(("request", "partition", "filed (UTC)", "by", "phase"), ("keys", "erased"), "what it waits for")
    for each in found:
        texts = (str(each[field]) for field in ("request_id", "partition"))
        numbers = (str(each[field]) for field in ("keys", "records_erased"))
        filed = utc(each["requested_at_ms"])
        table.add_row(*texts, filed, str(each["requested_by"]), str(each["phase"]), *numbers, str(each["problem"]))
    if found:
        print_table(table)
    print_line(f"{len(found)} requests, {sum(each['phase'] not in ('done', 'cancelled') for each in found)} open")


def _person() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container's user without a name
        return socket.gethostname()
