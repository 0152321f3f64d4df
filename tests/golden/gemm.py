"""Golden values of a linear layer's product, from PyTorch."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(2)
        a, b = random(g, (13, 40), dtype, False), random(g, (24, 40), dtype, False)
        bias = random(g, (24,), dtype, False)
        save(f"gemm_{name}", {"a": a, "b": b, "bias": bias, "c": torch.nn.functional.linear(a, b, bias)})


if __name__ == "__main__":
    main()
