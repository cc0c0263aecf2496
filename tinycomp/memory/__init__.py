"""Memory: what a run may spend, where buffers and constants lie, and files that are mapped."""
