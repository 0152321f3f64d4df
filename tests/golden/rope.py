"""Golden values of half-split RoPE (theta 10000), from PyTorch's autograd."""
import torch

from common import DTYPES, random, save

T, H, D, P = 5, 2, 24, 40


def rotate_half(x):
    return torch.cat((-x[..., D // 2:], x[..., :D // 2]), dim=-1)


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(6)
        x = random(g, (T, H, D), dtype, grad=False)
        dy = random(g, (T, H, D), dtype, grad=False)
        positions = torch.tensor([0, 1, 7, P - 1, 0], dtype=torch.int32)
        inv = 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
        angle = torch.cat((positions[:, None] * inv,) * 2, dim=-1)[:, None, :]
        cos, sin = angle.cos().float(), angle.sin().float()
        x32 = x.float().requires_grad_()
        y = x32 * cos + rotate_half(x32) * sin
        y.backward(dy.float())
        save(f"rope_{name}", {"x": x, "positions": positions, "dy": dy, "y": y.to(dtype), "dx": x32.grad.to(dtype)})


if __name__ == "__main__":
    main()
