"""The code generator of the C target: from a region to a program."""
