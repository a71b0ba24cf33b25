"""Commands on the tier: carried out by this process, or by the daemon if one runs."""
