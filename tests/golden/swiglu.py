"""Golden values of SwiGLU and GEGLU, from PyTorch's autograd in f32; bf16 inputs and results are rounded once."""
import torch
import torch.nn.functional as F

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(3)
        gate, up, dy = (random(g, (3, 40), dtype, grad=False) for _ in range(3))
        for file, function in (("swiglu", F.silu), ("geglu", lambda x: F.gelu(x, approximate="tanh"))):
            gate32, up32 = (x.float().clone().requires_grad_() for x in (gate, up))
            y = function(gate32) * up32
            y.backward(dy.float())
            save(f"{file}_{name}", {"gate": gate, "up": up, "dy": dy, "y": y.to(dtype),
                                    "dgate": gate32.grad.to(dtype), "dup": up32.grad.to(dtype)})


if __name__ == "__main__":
    main()
