"""Sources of changelogs: log dirs of this host, the tier, and both as one (changelog-restore 3.2 to 3.4)."""
