"""Replacement of ``spark-submit`` for tests without Spark: the same arguments, the same steps, one thread.

Run as a script, this module is the job; imported, it installs the command into a folder that tierd takes for Spark.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from tierd.pipeline.running.requirements import SparkInstallation

LOWEST_JAVA = 17


def installed(folder: Path) -> SparkInstallation:
    """Install a Spark whose ``bin/spark-submit`` is this file."""
    spark = SparkInstallation(folder, None, LOWEST_JAVA)
    spark.submit.parent.mkdir(parents=True, exist_ok=True)
    spark.submit.write_text(f'#!/bin/sh\nexec {sys.executable} -m {__name__} "$@"\n')
    spark.submit.chmod(0o755)
    return spark


async def _carry_out(socket: Path, config_file: Path) -> None:
    from tests.pipeline.committing.plain_job import PlainJob  # noqa: PLC0415 - ``installed`` needs no import
    from tierd.config import load_config  # noqa: PLC0415 - the same
    from tierd.log import broker_identity, read_identities  # noqa: PLC0415 - the same
    from tierd.remote import open_object_store, open_transform, segment_storages  # noqa: PLC0415 - the same

    config = load_config(config_file, {})
    found = read_identities([log_dir.path for log_dir in config.log_dirs])
    who = broker_identity(config_file, cluster_id=config.cluster_id, node_id=config.node_id, found=found)
    store, transform = open_object_store(config.remote), open_transform(config.remote)
    try:
        new_storage = segment_storages(
            config.remote, store, transform, cluster_id=who.cluster_id, broker_id=who.node_id
        )
        await asyncio.to_thread(PlainJob(socket, new_storage(), socket.parent / "scratch").run)
    finally:
        transform.close()
        await store.close()


def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--properties-file", "--leader", "--config"):
        parser.add_argument(name, type=Path)
    parser.add_argument("entry")
    options = parser.parse_args()
    asyncio.run(_carry_out(options.leader, options.config))


if __name__ == "__main__":
    _main()
