"""Advice: which small change would give a model fewer regions, or more of its work to a target."""
