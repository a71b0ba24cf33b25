"""Objects that the collection of the tests made: they last until the process ends, and cost no test any time."""

import gc

instances: list[object] = []
"""Those of classes of tierd."""

count = 0
"""Number of all of them that the garbage collector knew."""


def set_aside() -> None:
    """Exclude all present objects from later collections of garbage and from ``gc.get_objects``.

    A run of all tests has millions of them.
    """
    global count  # noqa: PLW0603 - as there is one garbage collector
    gc.collect()
    present = gc.get_objects()
    ours = {kind for kind in set(map(type, present)) if str(kind.__module__).startswith("tierd.")}
    instances.extend(each for each in present if type(each) in ours)
    count += len(present)
    del present
    gc.freeze()
