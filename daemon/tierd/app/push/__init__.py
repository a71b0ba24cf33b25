"""Push replication of one daemon: what it leads, the copies that it keeps, and its links to the other daemons."""
