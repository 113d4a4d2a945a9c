"""Start, watch and stop an engine's processes.

Does not do: knowing any engine.
"""
