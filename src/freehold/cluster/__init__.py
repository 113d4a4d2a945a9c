"""Nodes by name; one machine is a cluster of one.

Does not do: running commands on them (`world.py`).
"""
