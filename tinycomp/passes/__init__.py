"""Passes: one file each; a pass, its class and its command-line name agree (``merge_regions``, ``MergeRegions``)."""
