"""tinycomp."""
