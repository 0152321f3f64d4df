"""Golden values of the output head with its cross-entropy, from PyTorch's autograd."""
import torch
from torch.nn.functional import cross_entropy, linear

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        x, w = random(g, (7, 12), dtype), random(g, (20, 12), dtype)
        weights = torch.rand(7, generator=g) + 0.5
        targets = torch.randint(20, (7,), generator=g)
        targets[4] = -100
        # fp32 products, like the op; an fp32 leaf for w, so that dw is fp32.
        w32 = w.detach().float().requires_grad_()
        logits = linear(x.float(), w32)
        for file, capped in (("head", logits), ("head_capped", 0.5 * torch.tanh(logits / 0.5))):
            nll = cross_entropy(capped, targets, reduction="none")
            loss = weights * nll
            dx, dw = torch.autograd.grad(loss.sum(), (x, w32), retain_graph=True)
            save(f"{file}_{name}", {"x": x, "w": w, "targets": targets.int(), "dnll": weights, "loss": loss, "dx": dx,
                                    "dw": dw})


if __name__ == "__main__":
    main()
