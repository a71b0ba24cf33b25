"""ExpandedText: the type by which the reader of a file tells the settings that a value came out of a variable."""


class ExpandedText(str):
    """A value that came out of ``${NAME}``: text that may stand for a number or a switch."""

    __slots__ = ()
