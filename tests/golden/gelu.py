"""Golden values of GELU with tanh, from PyTorch's autograd."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(4)
        x = (random(g, (100,), dtype, grad=False) * 3).requires_grad_()
        dy = random(g, (100,), dtype, grad=False)
        y = torch.nn.functional.gelu(x, approximate="tanh")
        y.backward(dy)
        save(f"gelu_{name}", {"x": x, "dy": dy, "y": y, "dx": x.grad})


if __name__ == "__main__":
    main()
