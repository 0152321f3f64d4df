"""Golden values of the third step of Lion (Chen et al. 2023, algorithm 2), written with torch.lerp, sign_ and mul_, as
there is none in torch.optim. The first 32 of 48 weights decay."""
import torch

from common import DTYPES, random, save


def step(p, m, g, lr, betas, weight_decay, decay_end):
    update = torch.lerp(g, m, betas[0]).sign_()
    p[:decay_end].mul_(1 - lr * weight_decay)
    p.sub_(lr * update)
    m.copy_(torch.lerp(g, m, betas[1]))


def main():
    n, decay_end, scale = 48, 32, 0.375
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(5)
        p = random(g, (n,), torch.float32, grad=False).double()
        m = torch.zeros(n, dtype=torch.float64)
        for _ in range(3):
            gradient = random(g, (n,), dtype, grad=False)
            p, m = p.float().double(), m.float().double()  # the state of a step is fp32
            before = p.float(), m.float()
            step(p, m, gradient.double() * scale, lr=0.05, betas=(0.9, 0.99), weight_decay=0.1, decay_end=decay_end)
        save(f"lion_{name}", {"p_before": before[0], "m_before": before[1], "g": gradient,
                              "grad_scale": torch.tensor([scale]), "skip": torch.zeros(1, dtype=torch.int32),
                              "p": p.float(), "m": m.float(), "copy": p.float().to(dtype, copy=True)})


if __name__ == "__main__":
    main()
