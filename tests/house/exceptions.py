"""What the house rules allow, with the reason for each: for the name of a rule, subjects as findings give them.

``name.*`` stands for every subject below ``name``. An exception that allows nothing any more is a fault too.
"""

EXCEPTIONS: dict[str, dict[str, str]] = {}
