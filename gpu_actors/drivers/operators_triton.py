"""The Triton kernel of operators.py, in a file of its own: Triton reads a kernel's source, and need not be there."""

import torch
import triton
import triton.language as tl

ROWS, WIDTH = 4, 1024
"""Of the matrix, what one program reads at a time; the numbers of rows and columns must be multiples of them."""


@triton.jit  # type: ignore[untyped-decorator]
def product_kernel(w, x, y, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, width, WIDTH):
        columns = start + tl.arange(0, WIDTH)
        lines = tl.load(w + rows[:, None] * width + columns[None, :]).to(tl.float32)
        sums += tl.sum(lines * tl.load(x + columns)[None, :].to(tl.float32), axis=1)
    tl.store(y + rows, sums)


def product(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """matrix [rows, width] times vector [width], as float32."""
    rows, width = matrix.shape
    answer = torch.empty(rows, dtype=torch.float32, device=matrix.device)
    product_kernel[(rows // ROWS,)](matrix, vector, answer, width, ROWS=ROWS, WIDTH=WIDTH)
    return answer
