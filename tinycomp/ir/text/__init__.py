"""The textual form of graphs: print and parse."""
