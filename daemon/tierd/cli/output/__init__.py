"""The output of the command line: lines, tables, lists as JSON, progress, and records as text."""
