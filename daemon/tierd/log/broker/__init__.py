"""Log dirs of a broker, read-only: their content, the stable part of a log, and changes of the directories."""
