"""Golden values of SwiGLU, from PyTorch's autograd in f32; bf16 inputs and results are rounded once."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(3)
        gate, up, dy = (random(g, (3, 40), dtype, grad=False) for _ in range(3))
        gate32, up32 = gate.float().requires_grad_(), up.float().requires_grad_()
        y = torch.nn.functional.silu(gate32) * up32
        y.backward(dy.float())
        save(f"swiglu_{name}", {"gate": gate, "up": up, "dy": dy, "y": y.to(dtype),
                                "dgate": gate32.grad.to(dtype), "dup": up32.grad.to(dtype)})


if __name__ == "__main__":
    main()
