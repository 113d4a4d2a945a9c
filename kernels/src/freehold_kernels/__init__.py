"""How can decode with few tokens cost no more than reading the weights?

GGUF weights are repacked once into coalesced tiles (``layout``), and CUDA kernels compiled by
NVRTC for the GPU at hand (``cuda``) multiply them with 1 … 8 tokens. ``reference`` holds slow and
obviously right versions of the same operations.

Read first: ``dispatch`` for what is fast for which shape, ``reference`` for what the results mean.
Does not do: prefill with many tokens, attention, loading of files, or any change to an engine.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
