"""``tierd erase attest``: a person's statement that a store keeps no older versions, where tierd cannot ask it."""

from typing import Annotated

import typer

from tierd.app import Deployment, attest_erasure, run_in_loop
from tierd.cli.erasures import print_erasure, user_and_host
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, ErasureArgument, JsonOption
from tierd.cli.session import begin


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
