"""Everything about llama.cpp: its options, its processes, its log lines, its dialect.

Read ``engine.py`` first. ``options.py`` is the table of option names, ``serve.py`` the process of the embedded
runtime, ``signals.py`` what log lines mean, ``dialect.py`` how to talk to a server.

Does not do: starting or judging anything.
"""
