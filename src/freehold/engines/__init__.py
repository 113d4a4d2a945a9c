"""The only place that knows an engine

Does not do:  flags, environment, logs, metrics names, readiness, request dialect.:deciding what to run.
"""
