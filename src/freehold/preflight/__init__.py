"""May we start: one check per module, all run before anybody decides.

Does not do: changing anything on the machine.
"""
