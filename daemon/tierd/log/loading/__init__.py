"""From whatever a crash left in a directory to a log that can be used."""
