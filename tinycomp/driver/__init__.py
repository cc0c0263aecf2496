"""From a model to a module: compile, lower, report, save and load."""
