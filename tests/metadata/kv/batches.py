"""Hypothesis strategy for batches on few keys, so that the batches of a group touch the same rows."""

from hypothesis import strategies as st

from tierd.metadata import Batch, Delete, DeletePrefix, Expect, ExpectPresent, Put

_keys = st.sampled_from(["a", "b", "b/1", "b/2", "c"])
_values = st.binary(max_size=1)


def batches(*, removes_prefixes: bool = True) -> st.SearchStrategy[Batch]:
    """Return a strategy for batches, most of which have preconditions that may hold."""
    put, delete = st.builds(Put, _keys, _values), st.builds(Delete, _keys)
    write = st.one_of(put, put, delete, *([st.builds(DeletePrefix, st.just("b/"))] if removes_prefixes else []))
    expect = st.one_of(st.builds(Expect, _keys, st.one_of(st.none(), _values)), st.builds(ExpectPresent, _keys))
    return st.builds(Batch, st.lists(write, max_size=4), st.lists(expect, max_size=2))
