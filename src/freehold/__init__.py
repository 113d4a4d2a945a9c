"""Run frontier-scale open models on machines you own, and prove what you got.

One chain of saved records: plan → preflight → launch → verify → bench → report. ``docs/layout.md`` is the map.

Does not do: serving; that is the work of the engines it drives.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
