# ---
# contract: setup
# title: One CUDA device, sums in full precision
# applies_to: platform.accelerator == 'cuda'
# constants: [DTYPE, THREADS]
# ---
import torch

DEVICE = torch.device("cuda")
"""Where weights, cache and activations lie."""


def setup() -> None:
    """Compute on the machine's physical cores what is left to them; no product on the device takes a shortcut."""
    torch.set_num_threads(THREADS)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
