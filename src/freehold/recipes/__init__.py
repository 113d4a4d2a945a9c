"""Reads and writes our recipe files.

Does not do: resolving models or engines.
"""
