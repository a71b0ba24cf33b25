"""Loading of a log from its directory, in any state in which a crash may have left it."""
