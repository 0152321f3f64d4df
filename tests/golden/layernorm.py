"""Golden values of LayerNorm, from PyTorch's autograd."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(2)
        x, w, b = random(g, (5, 48), dtype), random(g, (48,), dtype), random(g, (48,), dtype)
        dy = random(g, (5, 48), dtype, grad=False)
        mean = x.float().mean(-1)
        rstd = torch.rsqrt(x.float().var(-1, unbiased=False) + 1e-5)
        y = torch.nn.functional.layer_norm(x, (48,), w, b, eps=1e-5)
        y.backward(dy)
        save(f"layernorm_{name}", {"x": x, "w": w, "b": b, "dy": dy, "y": y, "mean": mean, "rstd": rstd,
                                   "dx": x.grad, "dw": w.grad.float(), "db": b.grad.float()})


if __name__ == "__main__":
    main()
