# ---
# contract: setup
# title: Nothing to compile
# applies_to: platform.accelerator == 'cpu' and choice.linear == 'torch' and choice.attention == 'torch'
# constants: [DTYPE, THREADS]
# ---
import torch


def setup() -> None:
    """Compute on the machine's physical cores; there is nothing to build."""
    torch.set_num_threads(THREADS)
