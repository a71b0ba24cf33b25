"""State of a log's producers: sequences, transactions, snapshots."""
