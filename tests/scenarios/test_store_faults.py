"""Faults of the object store: they are named and retried, no record is lost, and no object is visible in part."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.stores import SpoilableS3, s3_section
from tests.services.s3 import S3Service

pytestmark = [pytest.mark.service("s3"), pytest.mark.service("toxiproxy")]

PARTITION = "synthetic-0"
ROLLED_THROUGH = 3 * 8 - 1
RECOVERY_DEADLINE_S = 60.0


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logdir", partitions=1, rolled_segments=3).path


Fault = Callable[[SpoilableS3], AbstractContextManager[None]]


@contextmanager
def refused(s3: SpoilableS3) -> Iterator[None]:
    s3.path.disable()
    yield
    s3.path.enable()


@contextmanager
def reset(s3: SpoilableS3) -> Iterator[None]:
    s3.path.add("reset_peer", timeout=0)
    yield
    s3.path.remove("reset_peer")


@contextmanager
def black_hole(s3: SpoilableS3) -> Iterator[None]:
    s3.path.add("timeout", "upstream", timeout=0)
    yield
    s3.path.remove("timeout", "upstream")


@contextmanager
def lost_replies(s3: SpoilableS3) -> Iterator[None]:
    s3.path.add("limit_data", bytes=30)
    yield
    s3.path.remove("limit_data")


@contextmanager
def frozen(s3: SpoilableS3) -> Iterator[None]:
    s3.service.services.freeze("s3")
    try:
        yield
    finally:  # later tests use the same server
        s3.service.services.thaw("s3")


@pytest.mark.parametrize("fault", [refused, reset, black_hole, lost_replies, frozen])
def test_daemon_outlives_a_store_fault_and_recovers_by_itself(
    fault: Fault,
    log_dir: Path,
    make_installation: MakeInstallation,
    spoilable_s3: SpoilableS3,
) -> None:
    tierd = make_installation(
        [log_dir], remote=spoilable_s3.remote(read_timeout="1s"), settings={"copy": {"attempt_timeout": "3s"}}
    )
    with ExitStack() as running:
        daemon = tierd.daemon()
        with fault(spoilable_s3):
            daemon.start()
            running.callback(daemon.kill)
            daemon.wait_until(lambda: says_what_is_wrong(tierd, spoilable_s3), what="the fault to be named")
            assert daemon.is_alive()
        daemon.wait_until(daemon.is_ready, what="the daemon to be ready", deadline_s=RECOVERY_DEADLINE_S)
        daemon.wait_copied({PARTITION: ROLLED_THROUGH}, deadline_s=RECOVERY_DEADLINE_S)
        daemon.wait_until(
            lambda: spoilable_s3.admin.unfinished_uploads(spoilable_s3.bucket) == [], what="no upload left"
        )
    assert_whole(tierd)


@pytest.mark.parametrize("fault", [refused, black_hole])
def test_copy_once_with_an_unreachable_store_names_the_store(
    fault: Fault,
    log_dir: Path,
    make_installation: MakeInstallation,
    spoilable_s3: SpoilableS3,
) -> None:
    tierd = make_installation(
        [log_dir], remote=spoilable_s3.remote(read_timeout="1s"), settings={"copy": {"attempt_timeout": "3s"}}
    )

    with fault(spoilable_s3):
        ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 3, ended.output
    assert spoilable_s3.bucket in ended.output or spoilable_s3.path.endpoint_url in ended.output
    assert tierd.ask("copy", "--once").exit_code == 0
    assert_whole(tierd)


def wrong_secret(s3: SpoilableS3) -> Settings:
    return {"secret_access_key": "not-the-secret"}


def user_without_rights(s3: SpoilableS3) -> Settings:
    access_key, secret_key = s3.service.services.new_s3_user()
    return {"access_key_id": access_key, "secret_access_key": secret_key}


def wrong_bucket(s3: SpoilableS3) -> Settings:
    return {"bucket": "no-such-bucket"}


@pytest.mark.parametrize("mistake", [wrong_secret, user_without_rights, wrong_bucket])
def test_refusal_of_the_store_is_named_with_a_remedy(
    mistake: Callable[[SpoilableS3], Settings],
    log_dir: Path,
    make_installation: MakeInstallation,
    spoilable_s3: SpoilableS3,
) -> None:
    wrong = mistake(spoilable_s3)
    tierd = make_installation([log_dir], remote=spoilable_s3.remote(**wrong))

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 3, ended.output
    assert wrong.get("bucket", spoilable_s3.bucket) in ended.output
    assert "Traceback" not in ended.output
    assert wrong.get("secret_access_key", spoilable_s3.service.secret_access_key) not in ended.output
    tierd.configure({"remote": spoilable_s3.remote()})
    assert tierd.ask("copy", "--once").exit_code == 0
    assert_whole(tierd)


def test_kill_of_the_store_during_large_uploads_is_survived(
    tmp_path: Path, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    shape = SegmentShape(batches=700, records_per_batch=16, value_bytes=1000)  # 11 MiB: three parts
    log_dir = write_log_dir(tmp_path / "large", partitions=2, rolled_segments=2, shape=shape).path
    spoilable_s3.path.add("bandwidth", "upstream", rate=8_000)
    tierd = make_installation([log_dir], remote=spoilable_s3.remote(part_size="5MiB"))
    services = spoilable_s3.service.services
    with tierd.daemon() as daemon:
        daemon.wait_until(
            lambda: spoilable_s3.admin.unfinished_uploads(spoilable_s3.bucket) != [], what="an upload under way"
        )
        services.kill("s3")
        services.start("s3")
        spoilable_s3.path.remove("bandwidth", "upstream")
        end = 2 * 700 * 16 - 1
        daemon.wait_copied({"synthetic-0": end, "synthetic-1": end}, deadline_s=RECOVERY_DEADLINE_S)
    # The killed store may have begun an upload whose id reached no client; this upload surely exists. The sweep after
    # a start aborts it.
    key = next(key for key in spoilable_s3.admin.keys(spoilable_s3.bucket) if key.endswith(".log"))
    spoilable_s3.admin.begin_upload(spoilable_s3.bucket, key)
    with tierd.daemon() as daemon:
        daemon.wait_until(
            lambda: spoilable_s3.admin.unfinished_uploads(spoilable_s3.bucket) == [], what="no upload left"
        )
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def test_an_object_that_was_overwritten_is_found_by_verify(
    log_dir: Path, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    tierd = make_installation([log_dir], remote=spoilable_s3.remote())
    assert tierd.ask("copy", "--once").exit_code == 0
    key = next(key for key in spoilable_s3.admin.keys(spoilable_s3.bucket) if key.endswith(".log"))
    content = spoilable_s3.admin.read(spoilable_s3.bucket, key)
    spoilable_s3.admin.overwrite(spoilable_s3.bucket, key, bytes([content[0] ^ 1]) + content[1:])

    verified = tierd.ask("verify", "--deep")

    assert verified.exit_code == 1, verified.output
    assert key.removesuffix(".log")[-22:] in verified.output  # the segment's id


def test_second_metadata_store_for_one_prefix_is_refused(
    log_dir: Path, make_installation: MakeInstallation, s3_service: S3Service, s3_bucket: str
) -> None:
    remote = s3_section(s3_service, s3_bucket)
    first = make_installation([log_dir], name="first", remote=remote)
    second = make_installation([log_dir], name="second", remote=remote)
    assert first.ask("copy", "--once").exit_code == 0

    ended = second.ask("copy", "--once")

    assert ended.exit_code == 4, ended.output
    assert "tierd.json" in ended.output
    assert "prefix" in ended.output
    assert_whole(first)


def says_what_is_wrong(tierd: Installation, s3: SpoilableS3) -> bool:
    """Return True if the log or the status of the daemon names the store or the bucket."""
    said = (tierd.root / "tierd.log").read_text()
    return s3.path.endpoint_url in said or s3.bucket in said


def assert_whole(tierd: Installation) -> None:
    offsets = [record["offset"] for record in tierd.cat(PARTITION)]
    assert offsets == list(range(ROLLED_THROUGH + 5))
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
