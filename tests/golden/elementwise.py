"""Golden values of cast, add, scale and softcap, from PyTorch."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(5)
        x, a, b = (random(g, (100,), dtype, grad=False) for _ in range(3))
        save(f"elementwise_{name}", {"x": x, "a": a, "b": b, "as_f32": x.float().clone(), "as_bf16": x.bfloat16().clone(),
                                     "as_f16": x.half(), "sum": a + b, "scaled": x * 0.375,
                                     "capped": (0.75 * torch.tanh(x.float() / 0.75)).to(dtype)})


if __name__ == "__main__":
    main()
