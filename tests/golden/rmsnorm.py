"""Golden values of RMSNorm as the Llama family defines it, from PyTorch's autograd."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        x, w = random(g, (5, 48), dtype), random(g, (48,), dtype)
        dy = random(g, (5, 48), dtype, grad=False)
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-5)
        y = (x.float() * rstd[:, None]).to(dtype) * w
        y.backward(dy)
        save(f"rmsnorm_{name}", {"x": x, "w": w, "dy": dy, "y": y, "rstd": rstd, "dx": x.grad, "dw": w.grad.float()})


if __name__ == "__main__":
    main()
