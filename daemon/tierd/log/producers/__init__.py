"""What a log knows of its producers: sequences, transactions, snapshots."""
