"""Which kernel and form each call gets: candidates, their cost, measurements and the choice."""
