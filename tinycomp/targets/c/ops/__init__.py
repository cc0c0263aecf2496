"""The operators of the C target, one file per family: check, layout and lowering of each."""
