"""Golden values of the weighted cross-entropy from PyTorch's autograd."""
import torch
from torch.nn.functional import cross_entropy

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        logits = random(g, (6, 40), dtype)
        weights = torch.rand(6, generator=g) + 0.5
        targets = torch.randint(40, (6,), generator=g)
        targets[2] = -100
        x = logits.float()
        nll = cross_entropy(x, targets, reduction="none")
        loss = weights * nll
        loss.sum().backward()
        save(f"cross_entropy_{name}", {"logits": logits, "targets": targets.int(), "dnll": weights, "loss": loss,
                                       "dlogits": logits.grad})


if __name__ == "__main__":
    main()
