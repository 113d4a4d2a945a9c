"""An OpenAI-compatible server of unknown kind.

Does not do: starting anything.
"""

from freehold.engines.openai.dialect import OpenAIDialect

__all__ = ["OpenAIDialect"]
