"""Golden values of half-split RoPE (theta 10000) from PyTorch's autograd, with one axis of positions, and with three as
transformers rotates texts of Qwen2-VL."""
import torch
from transformers import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

from common import DTYPES, random, save

T, H, D, P, SECTIONS = 5, 2, 24, 40, [3, 4, 5]


def rotate_half(x):
    return torch.cat((-x[..., D // 2:], x[..., :D // 2]), dim=-1)


def one_axis(positions):
    inv = 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.cat((positions[:, None] * inv,) * 2, dim=-1)
    return angle.cos().float(), angle.sin().float()


def three_axes(positions):
    config = Qwen2VLTextConfig(hidden_size=H * D, num_attention_heads=H, num_key_value_heads=H, max_position_embeddings=P,
                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": SECTIONS})
    return (x[0] for x in Qwen2VLRotaryEmbedding(config)(torch.zeros(1), positions[:, None, :]))


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(6)
        x = random(g, (T, H, D), dtype, grad=False)
        dy = random(g, (T, H, D), dtype, grad=False)
        columns = torch.tensor([[0, 1, 7, P - 1, 0], [3, 0, 11, 2, P - 1], [5, 30, 8, 0, 1]], dtype=torch.int32)
        for file, positions, turns in (("rope", columns[0], one_axis), ("rope_axes", columns, three_axes)):
            cos, sin = (t[:, None, :] for t in turns(positions))
            x32 = x.float().clone().requires_grad_()
            y = x32 * cos + rotate_half(x32) * sin
            y.backward(dy.float())
            save(f"{file}_{name}",
                 {"x": x, "positions": positions, "dy": dy, "y": y.to(dtype), "dx": x32.grad.to(dtype)})


if __name__ == "__main__":
    main()
