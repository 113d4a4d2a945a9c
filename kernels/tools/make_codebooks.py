"""Write the codebook files of freehold_kernels/formats/data from the `gguf` package's tables.

Method: each table is taken from `gguf.quants` (its values, not its code), mapped to small codes and
packed little-endian; tests/test_formats.py compares the files with the package again.
"""

from pathlib import Path

import numpy as np
from gguf import quants

OUT = Path(__file__).parent.parent / "src/freehold_kernels/formats/data"


def codes(cls: type) -> np.ndarray:
    cls.init_grid()
    grid = cls.grid.reshape(cls.grid_shape)
    return np.searchsorted(np.array(cls.grid_map, dtype=np.float32), grid).astype(np.uint16)


def pack(c: np.ndarray, bits: int) -> np.ndarray:
    shifts = (np.arange(c.shape[1]) * bits).astype(np.uint16)
    return (c << shifts).sum(axis=1).astype("<u2")


if __name__ == "__main__":
    for name, cls, bits in (("iq1", quants.IQ1_S, 2), ("iq2_xxs", quants.IQ2_XXS, 2), ("iq3_xxs", quants.IQ3_XXS, 3)):
        path = OUT / f"{name}.u16"
        pack(codes(cls), bits).tofile(path)
        print(path, path.stat().st_size)
