"""The record types of every stage, their schemas, and the run folder that holds them.

Read ``records/base.py`` first: what a record is and how it becomes JSON. Then one module per stage.

Does not do: any work of a stage.
"""
