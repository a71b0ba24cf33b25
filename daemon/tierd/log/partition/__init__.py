"""UnifiedLog: the whole log of a partition; appends, truncation and retention."""
