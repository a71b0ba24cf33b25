"""UnifiedLog: one partition, whole; what an append, a truncation and a retention pass do to it."""
