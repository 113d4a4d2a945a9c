"""Does it fit, and how fast can it be at most (pure).

Does not do: any I/O.
"""
