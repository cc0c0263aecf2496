"""The targets that come with tinycomp; each is one file or folder and is imported when it is asked for."""

from tinycomp.target.lookup import find, names

__all__ = ["find", "names"]
