"""The only place that knows an engine: flags, environment, logs, metrics names, readiness, request dialect.

Does not do: deciding what to run.
"""
