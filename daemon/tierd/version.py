"""The version of the installed package; its own module, since its import costs a command more than most rooms."""

from importlib.metadata import version

__version__ = version("tierd")
