"""The one OpenAI-compatible streaming client that verify and bench use.

Does not do: statistics.
"""
