"""``tierd endpoint hash-password``: the hashes of a password, which the configuration file may hold in its place."""

import getpass
import secrets
import sys
from typing import Annotated

import typer

from tierd.cli.failures import ExitCode
from tierd.cli.options import JsonOption
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.config import SCRAM_HASHES, ScramVerifier

_SALT_BYTES = 20
_LONGEST_PASSWORD = 1024


def hash_password(
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=4096, max=1_000_000, help="Rounds of the hash.")
    ] = 8192,
    as_json: JsonOption = False,
) -> None:
    """Read a password, and print its hashes for kafka.sasl.users; no password can be made of them.

    The password is the first line of standard input; a terminal is asked for it without showing it.

    Example: tierd endpoint hash-password < password-file
    """
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            print_error("tierd: the two passwords differ")
            raise typer.Exit(ExitCode.USAGE)
    else:
        password = sys.stdin.readline(_LONGEST_PASSWORD + 2).rstrip("\r\n")
    if not 0 < len(password) <= _LONGEST_PASSWORD:
        print_error(f"tierd: the password must have 1 to {_LONGEST_PASSWORD} characters")
        raise typer.Exit(ExitCode.USAGE)
    hashes = {
        mechanism.replace("-", "_").lower(): ScramVerifier.of_password(
            password, hash_name, salt=secrets.token_bytes(_SALT_BYTES), iterations=iterations
        ).to_text()
        for mechanism, hash_name in SCRAM_HASHES.items()
    }
    if as_json:
        print_json({**hashes})
        return
    for key, text in hashes.items():
        print_line(f"{key}: {text}")
