"""``tierd erase attest``, ``withdraw`` and ``step``: changes of requests to erase keys that are filed."""

from typing import Annotated

import typer

from tierd.app import Deployment, attest_erasure, cancel_erasure, run_in_loop, step_erasures
from tierd.cli.erasures import print_erasure, print_erasures, user_and_host
from tierd.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    ErasureArgument,
    JsonObjectOption,
    JsonOption,
    PartitionsArgument,
)
from tierd.cli.output.json_lists import print_list
from tierd.cli.session import begin
from tierd.model import TopicPartition


def attest(
    request_id: ErasureArgument,
    *,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Required: how you found out that no older versions are left."),
    ] = "",
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """State that no older versions of objects are left in a store that cannot list versions.

    The report names the user, the time and the reason.

    Example: tierd erase attest VQTsOPtHSxeH2Gp4lQguQg --reason "versioning is off, seen in the portal"
    """
    if not reason:
        raise typer.BadParameter("say with --reason how that was found out")
    deployment = Deployment(begin(config), config)
    attested = attest_erasure(deployment, request_id, by=user_and_host(), statement=reason)
    print_erasure(run_in_loop(attested), as_json=as_json)


def withdraw(request_id: ErasureArgument, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Cancel a request. Records that were erased stay erased, the others stay.

    Example: tierd erase withdraw VQTsOPtHSxeH2Gp4lQguQg
    """
    print_erasure(run_in_loop(cancel_erasure(Deployment(begin(config), config), request_id)), as_json=as_json)


def step(
    partitions: PartitionsArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """Take every step of open requests that is possible now.

    A running daemon does this by itself, every 30 s. Without a daemon, this command also deletes expired segments.

    Example: tierd erase step orders-0
    """
    names = [TopicPartition.parse(name) for name in partitions or []]
    stepped = run_in_loop(step_erasures(Deployment(begin(config), config), names))
    if as_json or as_object:
        print_list(stepped.to_json(), as_object=as_object)
    else:
        print_erasures(stepped.root)
