"""One module per command; a command parses, calls one library function and renders its result.

Does not do: arithmetic.
"""
