"""Starts an engine's processes, watches them until they really answer, and stops them again.

Read ``start.py`` first, then ``stop.py``. ``process.py`` says whether a process is one that we started; ``tree.py``
ends it with its children; ``watch.py`` follows its log; ``ready.py`` asks for the first completion; ``attach.py``
takes a server that somebody else started.

Does not do: knowing any engine (``engines/``), or keeping a server alive.
"""
