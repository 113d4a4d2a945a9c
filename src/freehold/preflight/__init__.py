"""May we start

Does not do:  one check per module.:changing anything on the machine.
"""
