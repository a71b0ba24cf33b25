"""Log dirs of a broker from what is in the tier: fetched, checked, staged, and renamed in (changelog-restore 4)."""
