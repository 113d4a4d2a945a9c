"""How fast it is, as the client sees it.

Does not do: judging correctness.
"""
