"""Random faults of a broker, its tierd and the store, for any time; a real consumer is the oracle.

::

    python -m tests.soak --minutes 30                       # both broker versions at the same time
    python -m tests.soak --minutes 5 --kafka 3.9.2 --seed 7
    python -m tests.soak --minutes 5 --only delete_records --only kill_daemon

Records are deleted inside segments, topics are deleted and created anew, logs are preallocated, cleaned, cut back and
moved between log dirs, broker and daemon are killed, and the store fails. Every few actions, and at the end, all
readable records are compared with the journal of the producers and with a real consumer: live, from the tier alone,
and from the tier alone after a rebuild of its metadata. The exit code is 0 if no record is lost or wrong.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.scenarios.stores import SpoilableS3
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaBroker, require_kafka
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services
from tests.soak.actions import ACTIONS, Action
from tests.soak.audit import assert_no_errors, audit_deep, audit_live, audit_remote_only, rebuilt
from tests.soak.lab import ALL_PARTITIONS, READY_DEADLINE_S, SoakLab

VERSIONS = ("3.9.2", "4.3.1")
AUDIT_EVERY = 6  # actions


def main() -> int:
    """Run the command line; return its exit code. A failed audit is an exception; its folder is kept."""
    arguments = _parser().parse_args()
    if arguments.kafka is None:
        return _soak_each_version()
    require_kafka(arguments.kafka)
    folder = Path(tempfile.mkdtemp(prefix=f"tierd-soak-{arguments.kafka}-"))
    print(f"logs below {folder}", flush=True)
    actions = [each for each in ACTIONS if not arguments.only or each.__name__ in arguments.only]
    with ExitStack() as stack:
        lab = _lab(stack, folder, version=arguments.kafka, seed=arguments.seed)
        _soak(lab, Random(arguments.seed), actions, minutes=arguments.minutes)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of actions; the last audits come on top")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kafka", choices=VERSIONS, help="default: each version, side by side")
    parser.add_argument("--only", action="append", choices=[each.__name__ for each in ACTIONS], help="some actions")
    return parser


def _soak_each_version() -> int:
    """Run one process a version with the same arguments; return 0 if all of them succeeded."""
    command = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
    running = [subprocess.Popen([*command, "--kafka", version]) for version in VERSIONS]
    return max(abs(process.wait()) for process in running)


def _lab(stack: ExitStack, folder: Path, *, version: str, seed: int) -> SoakLab:
    services = stack.enter_context(Services())
    s3 = S3Service.of(services.start("s3"), services)
    toxiproxy_url = services.start("toxiproxy")["TIERD_TEST_TOXIPROXY_URL"]
    admin = S3Admin(s3)
    stack.callback(admin.close)
    spoilable = SpoilableS3(s3, admin.create_bucket(), admin, FaultyPath(toxiproxy_url, s3.endpoint_url))
    broker = stack.enter_context(KafkaBroker(folder / "kafka", version=version, log_dir_count=2))
    warm = stack.enter_context(WarmTierd())
    return stack.enter_context(SoakLab(folder, broker, spoilable, warm, seed=seed))


def _soak(lab: SoakLab, random: Random, actions: Sequence[Action], *, minutes: float) -> None:
    end_s = time.monotonic() + minutes * 60
    done = 0
    while time.monotonic() < end_s:
        action = random.choice(actions)
        _say(lab, f"{done}: {action.__name__}")
        action(lab, random)
        done += 1
        if done % AUDIT_EVERY == 0:
            _say(lab, "audit")
            audit_live(lab, lab.tierd)
            assert_no_errors(lab)
    lab.traffic.stop()
    _audit_all(lab)
    _say(lab, f"{done} actions: nothing lost, nothing wrong")


def _audit_all(lab: SoakLab) -> None:
    """Audit live and from the tier alone, rebuild the metadata, and audit both again."""
    _say(lab, "last audits")
    audit_live(lab, lab.tierd)
    lab.wait_copied(ALL_PARTITIONS)
    audit_remote_only(lab, lab.tierd, what="from the tier alone")
    audit_deep(lab.tierd)
    assert_no_errors(lab)
    lab.wait_log_starts_recorded()
    assert lab.daemon.stop() == 0, lab.daemon.log_tail()
    fresh = rebuilt(lab)
    audit_remote_only(lab, fresh, what="from the tier alone after a rebuild")
    lab.daemon = fresh.daemon()
    lab.daemon.start()
    lab.daemon.wait_ready(deadline_s=READY_DEADLINE_S)
    audit_live(lab, fresh)
    lab.wait_copied(ALL_PARTITIONS)
    audit_remote_only(lab, fresh, what="from the tier alone, rebuilt and led again")
    audit_deep(fresh)
    assert_no_errors(lab)


def _say(lab: SoakLab, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {lab.broker.version} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
