"""Does it answer correctly; the gate before any speed.

Does not do: measuring speed.
"""
