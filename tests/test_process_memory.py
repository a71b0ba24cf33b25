"""Settings of the memory of a process, in processes of their own: they last until a process ends."""

import subprocess
import sys

_PIECES = """
import resource
from tierd.process_memory import keep_freed_memory

PIECE_BYTES = 8 << 20
def pieces():
    held = [bytearray(PIECE_BYTES) for _ in range(3)]

if {is_kept}:
    keep_freed_memory(piece_bytes=2 * PIECE_BYTES, kept_bytes=4 * PIECE_BYTES, arenas=2)
for _ in range(3):
    pieces()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    pieces()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_CYCLES = """
import gc
from tierd.process_memory import collect_rarely

collected = []
gc.callbacks.append(lambda phase, _: collected.append(phase))
collect_rarely(allocations=20_000)
assert not gc.get_objects(), "objects that exist are not searched"
kept = [[] for _ in range(15_000)]
assert not collected, collected
kept += [[] for _ in range(10_000)]
assert collected
"""
_FROZEN_MODULES = """
import gc
from tierd.process_memory import ModuleFreeze

class Cycle:
    def __init__(self):
        self.itself = self

def cycles():
    return sum(isinstance(each, Cycle) for each in gc.get_objects())

modules = ModuleFreeze()
Cycle()
modules.freeze_new()
frozen = gc.get_freeze_count()
assert frozen and not cycles()
Cycle()
modules.freeze_new()
assert cycles() == 1, "without an import, nothing more is frozen"
assert gc.collect() and not cycles(), "what came later is collected"
import sqlite3
Cycle()
modules.freeze_new()
assert gc.get_freeze_count() > frozen
gc.unfreeze()
assert not cycles(), "garbage was not frozen"
"""


def test_freed_memory_of_pieces_is_used_again_without_page_faults() -> None:
    kept, fresh = (int(_printed(_PIECES.format(is_kept=is_kept))) for is_kept in (True, False))

    assert kept < fresh / 10


def test_collector_rests_until_the_allocations_have_come() -> None:
    _printed(_CYCLES)


def test_frozen_are_modules_that_are_new_and_no_garbage() -> None:
    _printed(_FROZEN_MODULES)


def _printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
