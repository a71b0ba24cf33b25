"""State stores that a changelog is restored into (changelog-restore 3.5)."""
