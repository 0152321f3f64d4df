"""Golden values of RMSNorm as the Llama and the Gemma families define it, from PyTorch's autograd."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        x, w = random(g, (5, 48), dtype), random(g, (48,), dtype)
        dy = random(g, (5, 48), dtype, grad=False)
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-5)
        xhat = x.float() * rstd[:, None]
        for file, y in (("rmsnorm", xhat.to(dtype) * w), ("rmsnorm_gemma", (xhat * (1 + w.float())).to(dtype))):
            dx, dw = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
            save(f"{file}_{name}", {"x": x, "w": w, "dy": dy, "y": y, "rstd": rstd, "dx": dx, "dw": dw.float()})


if __name__ == "__main__":
    main()
