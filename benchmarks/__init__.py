"""Measurements, and the models they run on; development only, not part of the installed package."""
