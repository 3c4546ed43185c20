"""A lab: hosts as network namespaces on one machine, joined by links of known delay. Needs root.

Its links are made by programs that are not ours (`vde_switch` and `wirefilter`), so that what the
farm measures over them can be held against what was set.
"""
