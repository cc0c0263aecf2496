"""Regions in C source: the text, the compiler, the cache, and calling what was compiled."""
