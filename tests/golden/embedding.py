"""Golden values of the sum of token and position embeddings, as in GPT-2, from PyTorch's autograd."""
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
        # fp32 leaves, since autograd sums gradients in the dtype of the leaf and the op sums in fp32.
        w32, p32 = w.detach().float().requires_grad_(), p.detach().float().requires_grad_()
        (embedding(tokens, w32) + embedding(positions, p32)).backward(dy.float())
        save(f"embedding_{name}", {"w": w, "p": p, "tokens": tokens.int(), "positions": positions.int(), "y": y,
                                   "dy": dy, "dw": w32.grad, "dp": p32.grad})


if __name__ == "__main__":
    main()
