"""Golden values of the product and the bias gradient of a linear layer, from PyTorch."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(2)
        a, b = random(g, (13, 40), dtype, False), random(g, (24, 40), dtype, False)
        bias = random(g, (24,), dtype, False)
        save(f"gemm_{name}", {"a": a, "b": b, "bias": bias, "c": torch.nn.functional.linear(a, b, bias)})
        wide, dy = bias.float().requires_grad_(), random(g, (70, 24), dtype, False)
        (torch.zeros(70, 24) + wide).backward(dy.float())
        save(f"bias_backward_{name}", {"b": bias, "dy": dy, "db": wide.grad})


if __name__ == "__main__":
    main()
