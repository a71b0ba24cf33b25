"""What exists and what runs: builds every object from the configuration, supervises it, and stops it in order."""

from tierd.app.loop import run_in_loop
from tierd.app.once import copy_once
from tierd.app.reading import Located, TierReader, explain_offset, tier_reader
from tierd.app.run import run_daemon

__all__ = ["Located", "TierReader", "copy_once", "explain_offset", "run_daemon", "run_in_loop", "tier_reader"]
