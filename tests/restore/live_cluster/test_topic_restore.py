"""Collections of Python's garbage while topics are restored."""

import gc

import pytest

from tierd.restore.live_cluster.topic_restore import rare_collections


def test_collections_are_rare_in_the_block_and_as_before_after_it() -> None:
    before = gc.get_threshold()

    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_threshold()[1:] == before[1:]

    assert gc.get_threshold() == before


def test_collections_are_as_before_after_a_failure() -> None:
    before = gc.get_threshold()

    with pytest.raises(ValueError, match="failed"), rare_collections():
        raise ValueError("failed")

    assert gc.get_threshold() == before
