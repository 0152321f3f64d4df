"""Shared by the golden scripts: random inputs from a fixed seed, and the output files, one per op and dtype."""
import os

import torch
from safetensors.torch import save_file

FOLDER = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def random(generator, shape, dtype, grad=True):
    """Uniform in [-1.5, 1.5), rounded to dtype."""
    x = (torch.rand(shape, generator=generator) * 3 - 1.5).to(dtype)
    return x.requires_grad_(grad)


def save(name, tensors):
    """Writes tests/golden/NAME.safetensors. Tensors have the names of the arguments in the cases of the op."""
    tensors = {key: value.detach().contiguous() for key, value in tensors.items()}
    save_file(tensors, os.path.join(FOLDER, name + ".safetensors"))
