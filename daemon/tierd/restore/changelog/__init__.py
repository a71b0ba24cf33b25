"""Changelogs: their sources, and the reader that fills state stores from them (changelog-restore 1 to 3)."""
