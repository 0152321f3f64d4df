"""Golden values of the third step of torch.optim.AdamW, with one parameter group decayed and one not."""
import torch

from common import DTYPES, random, save


def main():
    n, decay_end, scale = 48, 32, 0.375
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(2)
        p = random(g, (n,), torch.float32, grad=False)
        parts = [p[:decay_end].clone().requires_grad_(), p[decay_end:].clone().requires_grad_()]
        optimizer = torch.optim.AdamW([{"params": parts[:1], "weight_decay": 0.1},
                                       {"params": parts[1:], "weight_decay": 0.0}], lr=0.05)

        def state():
            moments = [torch.cat([optimizer.state[q][key] for q in parts]).clone() for key in ("exp_avg", "exp_avg_sq")]
            return torch.cat([q.detach() for q in parts]).clone(), *moments

        for step in range(1, 4):
            gradient = random(g, (n,), dtype, grad=False)
            if step == 3:
                before = state()
            for q, part in zip(parts, (gradient[:decay_end], gradient[decay_end:])):
                q.grad = part.float() * scale
            optimizer.step()
        p, m, v = state()
        save(f"adamw_{name}", {"p_before": before[0], "m_before": before[1], "v_before": before[2], "g": gradient,
                               "grad_scale": torch.tensor([scale]), "skip": torch.zeros(1, dtype=torch.int32),
                               "p": p, "m": m, "v": v, "copy": p.to(dtype, copy=True)})


if __name__ == "__main__":
    main()
