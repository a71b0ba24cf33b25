"""``tierd erase list`` and ``tierd erase status``: requests to erase keys, and everything that was done for one."""

from typing import Annotated

import typer

from tierd.app import list_erasures, read_erasure, run_in_loop
from tierd.cli.erasures import print_erasures, print_until_done
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, ErasureArgument, JsonObjectOption, JsonOption
from tierd.cli.output.json_lists import print_list
from tierd.cli.session import begin_with_metadata
from tierd.model import TopicPartition


def list_(
    partition: Annotated[
        str | None, typer.Argument(metavar="[TP]", help="A partition, topic-partition; none means all.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List the requests to erase keys, oldest first, with the condition that each request waits for.

    Example: tierd erase list orders-0
    """
    name = None if partition is None else TopicPartition.parse(partition)
    found = run_in_loop(list_erasures(begin_with_metadata(config), name))
    if as_json or as_object:
        print_list([each.to_json() for each in found], as_object=as_object)
    else:
        print_erasures(found)


def status(request_id: ErasureArgument, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Show the report of a request, step by step; exits with 1 until the request is done.

    The report has counts and times, and the SHA-256 of each key.

    Example: tierd erase status VQTsOPtHSxeH2Gp4lQguQg
    """
    print_until_done(run_in_loop(read_erasure(begin_with_metadata(config), request_id)), as_json=as_json)
