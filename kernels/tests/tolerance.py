"""How far may a kernel be from the float64 reference? Fixed on 2026-11-30, before any timing.

Weights are exact in every kernel. Activations are integers of almost 13 bits (IQ1_S) or 16 bits (Q8_0) relative to the
largest of 256, so that a float32 output is within 1e-3 or 2e-4 of the reference (relative L2 norm over the output).
Kernels with 8-bit activations, such as the released ones, are near 6e-3. Outputs in bfloat16 and float16 add their own
rounding (2^-9 and 2^-12).
"""

import torch

RELATIVE_L2 = {
    ("IQ1_S", torch.float32): 1e-3,
    ("IQ1_S", torch.float16): 1.2e-3,
    ("IQ1_S", torch.bfloat16): 3e-3,
    ("Q8_0", torch.float32): 2e-4,
    ("Q8_0", torch.float16): 5e-4,
    ("Q8_0", torch.bfloat16): 3e-3,
}
# a single element may be off by this many times (tolerance · root mean square of the output)
ELEMENT_FACTOR = 8.0


def check_close(out: torch.Tensor, expected: torch.Tensor, name: str) -> float:
    """Fail with the coordinate and both values of the worst element; return the relative L2 error."""
    limit = RELATIVE_L2[name, out.dtype]
    got = out.detach().cpu().double()
    assert got.shape == expected.shape
    assert torch.isfinite(got).all(), "the output is not finite"
    error = (got - expected).abs()
    at = torch.unravel_index(error.argmax(), error.shape)
    worst = f"worst element {tuple(int(i) for i in at)}: got {got[at]}, expected {expected[at]}"
    relative = float((got - expected).norm() / expected.norm())
    rms = float(expected.square().mean().sqrt())
    assert relative <= limit, f"relative L2 error {relative:.2e} > {limit:.2e}; {worst}"
    assert float(error.max()) <= ELEMENT_FACTOR * limit * rms, worst
    return relative
