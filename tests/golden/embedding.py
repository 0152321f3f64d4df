"""Golden values of token and position embeddings added up, as GPT-2 does, from PyTorch's autograd."""
import torch
from torch.nn.functional import embedding

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        w, p = random(g, (7, 40), dtype), random(g, (5, 40), dtype)
        tokens = torch.randint(7, (12,), generator=g)
        positions = torch.arange(12) % 5
        dy = random(g, (12, 40), dtype, grad=False)
        y = embedding(tokens, w) + embedding(positions, p)
        # The gradients add up in fp32, which autograd does only for fp32 leaves.
        w32, p32 = w.detach().float().requires_grad_(), p.detach().float().requires_grad_()
        (embedding(tokens, w32) + embedding(positions, p32)).backward(dy.float())
        save(f"embedding_{name}", {"w": w, "p": p, "tokens": tokens.int(), "positions": positions.int(), "y": y,
                                   "dy": dy, "dw": w32.grad, "dp": p32.grad})


if __name__ == "__main__":
    main()
