"""Searches that know no graph: the fewest regions, and the cheapest placement, of numbered vertices."""
