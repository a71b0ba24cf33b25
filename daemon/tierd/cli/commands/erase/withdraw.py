"""``tierd erase withdraw``: give a request to erase keys up."""

from tierd.app import Deployment, cancel_erasure, run_in_loop
from tierd.cli.erasures import print_erasure
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, ErasureArgument, JsonOption
from tierd.cli.session import begin


def withdraw(request_id: ErasureArgument, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Cancel a request. Records that were erased stay erased, the others stay.

    Example: tierd erase withdraw VQTsOPtHSxeH2Gp4lQguQg
    """
    print_erasure(run_in_loop(cancel_erasure(Deployment(begin(config), config), request_id)), as_json=as_json)
