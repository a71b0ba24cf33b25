"""Changes between the known directories and new listings of several log dirs."""

from pathlib import Path
from uuid import UUID

import pytest

from tierd.errors import MissingArtefactError
from tierd.log import DirectoryKind, PartitionDirectory
from tierd.model import TopicPartition
from tierd.tiering.replicas.catalog import CatalogChange, catalog_change

ONE, TWO = Path("/disk1"), Path("/disk2")


def _directory(
    name: str = "orders-0",
    *,
    log_dir: Path = ONE,
    topic_id: int | None = 1,
    kind: DirectoryKind = DirectoryKind.CURRENT,
    inode: int = 1,
) -> PartitionDirectory:
    identity = None if topic_id is None else UUID(int=topic_id)
    return PartitionDirectory(log_dir / name, TopicPartition.parse(name), identity, kind, inode)


def _change(
    known: list[PartitionDirectory],
    found: list[PartitionDirectory],
    *,
    offline: tuple[Path, ...] = (),
    unreadable: tuple[Path, ...] = (),
    excluded: str = "",
) -> CatalogChange:
    return catalog_change(
        {directory.partition: directory for directory in known},
        found,
        offline=offline,
        unreadable=unreadable,
        wants=lambda topic: topic != excluded,
    )


@pytest.mark.spec("remote-tiering 204")
def test_directory_without_a_topic_id_has_no_partition_identity() -> None:
    with pytest.raises(MissingArtefactError, match="orders-0"):
        _ = _directory(topic_id=None).partition


def test_directory_that_is_listed_for_the_first_time_has_appeared() -> None:
    change = _change([], [_directory()])
    assert change == CatalogChange((_directory(),), (), (), ())


def test_unchanged_directory_is_no_change() -> None:
    assert _change([_directory()], [_directory()]) == CatalogChange((), (), (), ())


def test_directory_that_is_no_longer_listed_has_vanished() -> None:
    assert _change([_directory()], []).vanished == (_directory().partition,)


def test_deleted_stray_or_future_directory_is_ignored() -> None:
    for kind in (DirectoryKind.DELETE, DirectoryKind.STRAY, DirectoryKind.FUTURE):
        change = _change([_directory()], [_directory(kind=kind)])
        assert change.vanished == (_directory().partition,)
        assert change.appeared == ()


def test_a_topic_created_again_is_another_partition() -> None:
    again = _directory(topic_id=2, inode=2)
    change = _change([_directory()], [again])
    assert (change.appeared, change.vanished) == ((again,), (_directory().partition,))


def test_replica_in_another_log_dir_has_moved() -> None:
    moved = _directory(log_dir=TWO, inode=2)
    assert _change([_directory()], [moved]).moved == (moved,)


def test_known_directory_counts_if_a_replica_has_two() -> None:
    change = _change([_directory()], [_directory(log_dir=TWO, inode=2), _directory()])
    assert change == CatalogChange((), (), (), ())


def test_directory_in_an_offline_log_dir_stays_known() -> None:
    assert _change([_directory()], [], offline=(ONE,)).vanished == ()


def test_a_directory_that_cannot_be_identified_for_now_stays_known() -> None:
    assert _change([_directory()], [_directory(topic_id=None)]).vanished == ()
    assert _change([_directory()], [], unreadable=(_directory().path,)).vanished == ()


def test_directory_of_a_topic_excluded_later_has_vanished() -> None:
    assert _change([_directory()], [_directory()], excluded="orders").vanished == (_directory().partition,)


def test_directory_without_a_topic_id_is_unidentified() -> None:
    assert _change([], [_directory(topic_id=None)]).unidentified == (_directory(topic_id=None),)
