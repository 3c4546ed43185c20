"""A lab: hosts as network namespaces on one machine, joined by links of known delay. Needs root.

Independent programs (`vde_switch` and `wirefilter`) make the links, so measurements of the farm can
be checked against their settings.
"""
