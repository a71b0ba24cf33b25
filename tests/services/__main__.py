"""Start real servers around a command, or until Ctrl-C. Installs nothing, see ``install.sh``.

::

    python -m tests.services run s3 -- pytest tests/remote   # settings in the environment, then stop
    python -m tests.services up s3 toxiproxy                 # print ``export NAME=value``, stop on Ctrl-C
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from tests.services.services import NAMES, ServiceError, Services


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["up", "run"])
    parser.add_argument("names", nargs="+", metavar="service", help=", ".join(NAMES))
    parser.add_argument("--dir", type=Path, help="keep data and logs here; default: a temporary folder")
    arguments = sys.argv[1:]
    command: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _exit)
    if args.dir:
        args.dir.mkdir(parents=True, exist_ok=True)
    try:
        with Services(args.dir and args.dir.resolve()) as services:
            settings: dict[str, str] = {}
            for name in args.names:
                settings |= services.start(name)
            if args.action == "run":
                return subprocess.run(command, env=os.environ | settings, check=False).returncode
            print("\n".join(f"export {name}='{value}'" for name, value in settings.items()), flush=True)
            sys.stdin.read()
            return 0
    except ServiceError as error:
        print(f"services: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 0


def _exit(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
