"""A model of a fleet and its lease table, for planning: what happens when workers come and go.

Events instead of time, and the daemon's own decisions (``rules``) instead of a guess at them.
Nothing here reads a clock, draws a number of its own or speaks to anybody.
"""
