"""Scenes of the pages, and the commands that no test can run."""

from typing import Final

from tests.transcripts.pages import other_tests, stories
from tests.transcripts.pages.scenes import Scene

NOT_RUN: Final = {
    r"(sudo )?systemctl (daemon-reload|enable|edit|status|reload)": "needs systemd",
    r"sudo systemd-run|journalctl": "needs systemd",
    r"docker ": "needs a Docker daemon",
    r"sudo apt-get": "installs packages on the host",
    r"sudo python3 -m (venv|pip)|(sudo /opt/tierd/bin/)?pip install": "installs tierd",
    r"make ": "a target of the Makefile",
    r"kafka-(acls|configs)\.sh --bootstrap-server …": "has values to fill in",
}
"""Reasons by the begin of a command, for all pages."""

_PIPELINE: Final = {"pipeline": {"enabled": True, "nice": 0, "io_class": "none"}}
_DOCTOR: Final = "^tierd doctor|^/etc/tierd|^bundle"  # notes are about the host of the test

SCENES: Final = {
    "README.md": Scene(
        opening=stories.start_quick_start,
        before={"/opt/tierd/bin/tierd check-config": stories.configure_as_readme},
        shown={
            "curl localhost:9405/metrics": r"^tierd_remote_log_size_bytes|^# HELP tierd_(gap|remote_copy)",
            "tierd cat payments-0 --committed": r"^[12]?\d\t",
        },
        elsewhere=other_tests.README,
    ),
    "docs/contributing.md": Scene(),
    "docs/control-plane.md": Scene(elsewhere=other_tests.CONTROL_PLANE),
    "docs/erasure.md": Scene(
        opening=stories.fill_with_alice,
        settings={"pipeline": _PIPELINE["pipeline"] | {"merge": False}},
        has_plain_spark=True,
        before={
            'A report: tierd erase request orders-0 --key alice --reason "ticket 17" --now': stories.fill_with_alice
        },
        values={"ID": stories.open_request},
    ),
    "docs/install.md": Scene(
        opening=stories.fill_demo,
        before={
            "sudo -u kafka tierd check-config": stories.edit_configuration,
            "sudo -u kafka tierd status": stories.start,
        },
        not_run={
            r"sudoedit": "needs an editor; the tests of the Debian package edit that file",
            r"sudo install -D -m 0644 /usr/share/tierd": "needs the Debian package, which has tests of its own",
        },
    ),
    "docs/log-dirs.md": Scene(opening=stories.unpack_crashed),
    "docs/operations.md": Scene(
        opening=stories.start_demo,
        settings={"drill": {"partitions": 4}},  # all: their order is that of their random topic ids
        before={
            "cp /backup/tierd/metadata.db /var/lib/tierd/metadata.db": stories.back_up_metadata,
            "sudo -u kafka tierd rebuild-metadata --accept-unauthenticated": stories.stop_and_lose_metadata,
            "sudo -u kafka tierd metadata export /backup/tierd/metadata-$(date +%F-%H).jsonl": stories.start,
            "tierd groups": stories.commit_of_billing,
        },
        values={"00000000000000001234": lambda _: f"{1120:020}"},
        shown={
            "tierd verify --deep --sample 5% --seed 7": "^nothing",  # the choice depends on random ids
            "tierd doctor": _DOCTOR,
            "sudo -u kafka tierd doctor": _DOCTOR,
            "sudo -u kafka tierd doctor --bundle /tmp/tierd-report.tar.gz": _DOCTOR,
            "sudo -u kafka tierd doctor --offline": _DOCTOR,
        },
        in_any_order=frozenset(
            f"tierd drill{rest}" for rest in ("", " --all --from-bucket", " --broker", " --history")
        ),
        elsewhere=other_tests.OPERATIONS,
    ),
    "docs/pipeline.md": Scene(
        opening=stories.fill_customers,
        in_any_order=frozenset(("tierd segments customers-0",)),
        settings=_PIPELINE | {"topics": {"overrides": [{"match": "customers", "cleanup_policy": "compact"}]}},
        has_plain_spark=True,
    ),
    "docs/push.md": Scene(elsewhere=other_tests.PUSH),
    "docs/python.md": Scene(elsewhere=other_tests.PYTHON),
    "docs/read-endpoint.md": Scene(elsewhere=other_tests.READ_ENDPOINT),
    "docs/restore.md": Scene(
        elsewhere=other_tests.RESTORE,
        not_run={r"kafka-server-start\.sh": "starts the broker of the host"},
    ),
    "docs/retention.md": Scene(
        opening=stories.limit_size,
        before={
            "tierd undelete orders-0 --all --dry-run": stories.raise_retention,
            "tierd delete-partition orders-0 --yes": stories.stop_copies_of_orders,
        },
    ),
    "docs/several-brokers.md": Scene(
        opening=stories.start_demo,
        before={"sudo editor /etc/tierd/tierd.yaml": stories.name_other_store},
        not_run={"sudo editor": "the test edits the file"},
    ),
    "docs/spark.md": Scene(not_run={"pyspark": "an interactive session"}),
    "docs/state-stores.md": Scene(elsewhere=other_tests.STATE_STORES),
    "docs/stores.md": Scene(
        opening=stories.start_demo,
        shown={
            "tierd estimate /var/lib/kafka/data --retention 90d --replication-factor 3 --zstd 3": (
                "^topic |^too short|^  |one segment only"  # the pace is that of the files of the test
            ),
        },
    ),
}
