"""Every operation that changes the tier, killed at every point, on every backend: the tier is whole, and the work ends.

In memory and with SQLite that is every wait and both sides of every call; with PostgreSQL and Redis every batch: before
it, while the server has it, and before its answer is heard. Kills without a server often leave equal worlds: each
successor continues once from each world. ``make crash-points`` kills everywhere, on all of them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.postgres import PostgresService
from tests.services.redis import RedisService
from tests.tiering.crash_points.campaign import fingerprint, template_of
from tests.tiering.crash_points.operations import OPERATIONS
from tests.tiering.crash_points.points import Points
from tests.tiering.crash_points.victim import ForkedVictims
from tests.tiering.crash_points.world import MEMORY, World, new_world

DEADLINE_S = 600
JOBS = str(min(4, os.cpu_count() or 1))


def _kill_everywhere(backend: str, *more: str, **settings: str) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.tiering.crash_points", "--backend", backend),
            *("--alternating", "--jobs", JOBS, *more),
        ],
        env=os.environ | settings,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    print(ended.stdout)


def test_tier_with_metadata_in_memory_survives_a_kill_at_every_point() -> None:
    _kill_everywhere("memory")


def test_tier_with_sqlite_survives_a_kill_of_a_real_process_at_every_point() -> None:
    _kill_everywhere("sqlite")


@pytest.mark.service("postgres")
def test_tier_with_postgres_survives_a_kill_around_every_batch(postgres_service: PostgresService) -> None:
    dsn = postgres_service.dsn
    _kill_everywhere("postgres", "--place", "KeyValueStore.apply", TIERD_TEST_POSTGRES_DSN=dsn)


@pytest.mark.service("redis")
def test_tier_with_redis_survives_a_kill_around_every_batch(redis_service: RedisService) -> None:
    _kill_everywhere("redis", "--place", "KeyValueStore.apply", TIERD_TEST_REDIS_URL=redis_service.url)


def _link_epochs(world: World) -> None:
    (world.path(1) / "link").hardlink_to(world.path(1) / "leader-epoch-checkpoint")


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda world: None, {"key": b"other"}),
        (lambda world: None, {}),
        (lambda world: setattr(world, "now_ms", world.now_ms + 1), {"key": b"value"}),
        (lambda world: (world.bucket / "folder").mkdir(), {"key": b"value"}),
        (lambda world: (world.state_dir(1) / "file").write_bytes(b""), {"key": b"value"}),
        (lambda world: (world.path(1) / "leader-epoch-checkpoint").unlink(), {"key": b"value"}),
        (lambda world: (world.path(1) / "leader-epoch-checkpoint").write_bytes(b"0\n0\n"), {"key": b"value"}),
        (_link_epochs, {"key": b"value"}),
    ],
    ids=["row-differs", "row-missing", "time", "folder", "file", "file-missing", "bytes", "links"],
)
def test_worlds_are_equal_only_with_equal_time_rows_and_files(
    change: Callable[[World], object], rows: dict[str, bytes], tmp_path: Path
) -> None:
    world = new_world(tmp_path / "world")
    copy = world.copy_to(tmp_path / "copy", MEMORY)
    before = fingerprint(world, {"key": b"value"})
    assert fingerprint(copy, {"key": b"value"}) == before
    change(copy)
    assert fingerprint(copy, rows) != before


def test_kill_strikes_at_the_named_crash_point(tmp_path: Path) -> None:
    """Both kinds of kill strike at the point and leave the row, and a file under its temporary name."""
    template = template_of(OPERATIONS["copy"], tmp_path / "template")
    place = "before os.link"
    with ForkedVictims() as victims:
        world = template.world.copy_to(tmp_path / "world", "metadata.db")
        points = victims.kill(world, template.operation, 4, place=place)
    assert (points.is_dead, points.count) == (True, 4)
    assert points.place.startswith(place)


def test_process_without_a_kill_completes_its_operation(tmp_path: Path) -> None:
    template = template_of(OPERATIONS["copy"], tmp_path / "template")
    assert template.world.address == MEMORY
    with ForkedVictims() as victims:
        world = template.world.copy_to(tmp_path / "world", "metadata.db")
        points: Points = victims.kill(world, template.operation, None, place="")
    assert not points.is_dead
    assert points.count > 100
