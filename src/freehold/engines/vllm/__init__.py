"""vLLM: the part that only needs a URL.

Does not do: starting vLLM.
"""

from freehold.engines.vllm.dialect import VllmDialect

__all__ = ["VllmDialect"]
