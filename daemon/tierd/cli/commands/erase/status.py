"""``tierd erase status``: everything that was done for one request to erase keys."""

from tierd.app import read_erasure, run_in_loop
from tierd.cli.erasures import print_until_done
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, ErasureArgument, JsonOption
from tierd.cli.session import begin_with_metadata


def status(request_id: ErasureArgument, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Show the report of a request, step by step; exits with 1 until the request is done.

    The report has counts and times, and the SHA-256 of each key.

    Example: tierd erase status VQTsOPtHSxeH2Gp4lQguQg
    """
    print_until_done(run_in_loop(read_erasure(begin_with_metadata(config), request_id)), as_json=as_json)
