"""Does it answer correctly; the gate before any speed.

Read ``run.py`` (the gate), then ``fingerprint.py`` (the comparison that carries it). ``interview.py`` asks the server,
every other module judges answers and touches nothing.

Does not do: measuring speed.
"""
