"""Runs the chain: on a recipe, on an address, or one stage again from a run folder.

Read ``journey/run.py`` first. ``course.py`` keeps the book of stages, ``steps.py`` holds one function per stage.

Does not do: any stage's own work, and no printing.
"""
