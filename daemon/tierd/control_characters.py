"""Control characters made visible: names, paths and error texts come from outside and go to a terminal."""


def visible(text: str) -> str:
    r"""Return ``text`` with every character that cannot be printed as its escape, such as ``\x1b`` and ``\u202e``.

    These are the control characters (C0, C1, line ends and tabs among them), those that change the direction of text or
    take no room, separators of lines and paragraphs, spaces other than the plain one, and halves of surrogate pairs. A
    backslash stays as it is.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
