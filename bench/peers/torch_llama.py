"""A training step of a Llama or Qwen2 shape in PyTorch with the recipe of Flatshard's bench: bf16 weights and activations, fp32
masters and moments with fused AdamW, gradient norm clipped to 1, fused attention; on a GPU, compiled blocks and loss.
Gradients are bf16, while Flatshard sums them in fp32."""
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: bool
    bias: bool
    theta: float


SHAPES = {
    "qwen2.5-0.5b": Shape(24, 896, 14, 2, 4864, 151936, True, True, 1e6),
    "qwen2.5-1.5b": Shape(28, 1536, 12, 2, 8960, 151936, True, True, 1e6),
    "llama3-8b-4-layers": Shape(4, 4096, 32, 8, 14336, 128256, False, False, 5e5),
    "tiny": Shape(2, 64, 2, 2, 128, 256, False, False, 1e4),
}


def rotary(length, head_dim, theta, device):
    angles = torch.outer(torch.arange(length, device=device).float(),
                         theta ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim))
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-b, a], dim=-1) * sin).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, self.head_dim = s, s.hidden // s.heads
        self.norm1, self.norm2 = nn.RMSNorm(s.hidden, eps=1e-5), nn.RMSNorm(s.hidden, eps=1e-5)
        self.qkv = nn.Linear(s.hidden, (s.heads + 2 * s.kv_heads) * self.head_dim, bias=s.bias)
        self.out = nn.Linear(s.hidden, s.hidden, bias=False)
        self.gate_up, self.down = nn.Linear(s.hidden, 2 * s.ffn, bias=False), nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x, cos, sin):  # (B, T, C)
        batch, length, _ = x.shape
        s, heads = self.s, self.qkv(self.norm1(x)).view(batch, length, -1, self.head_dim).transpose(1, 2)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=s.heads != s.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, s, length, recompute, device):
        super().__init__()
        self.recompute = recompute
        self.tokens = nn.Embedding(s.vocab, s.hidden)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm, self.head = nn.RMSNorm(s.hidden, eps=1e-5), nn.Linear(s.hidden, s.vocab, bias=False)
        if s.tied:
            self.head.weight = self.tokens.weight
        self.cos, self.sin = rotary(length, s.hidden // s.heads, s.theta, device)
        self.loss = torch.compile(self.loss_of, dynamic=False) if device == "cuda" else self.loss_of
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        if device == "cuda":
            for block in self.blocks:
                block.compile(dynamic=False)

    def loss_of(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).view(-1, self.head.out_features).float(), targets.reshape(-1))

    def forward(self, tokens, targets):  # both (B, T)
        x = self.tokens(tokens)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, self.cos, self.sin, use_reentrant=False) if self.recompute else \
                block(x, self.cos, self.sin)
        return self.loss(x, targets)


class Training:
    def __init__(self, model, length, batch, micro_steps, recompute, device):
        torch.manual_seed(1)
        shape = SHAPES[model]
        self.device, self.micro_steps = device, micro_steps
        with torch.device(device):
            self.model = Llama(shape, length, recompute, device)
            # u^3 over the vocabulary, as in the bench, so that the loss can decrease.
            self.batches = (torch.rand(64, batch, length + 1) ** 3 * (shape.vocab - 1)).long()
        self.weights = list(self.model.parameters())
        self.masters = [p.detach().clone() for p in self.weights]
        self.model.to(torch.bfloat16)
        decays = [p.dim() == 2 and p is not self.model.tokens.weight for p in self.weights]
        groups = [{"params": [m for m, d in zip(self.masters, decays) if d == decayed], "weight_decay": 0.1 if decayed else 0.0}
                  for decayed in (True, False)]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
        self.number = 0

    def now(self):
        """A moment on the device, for seconds_between()."""
        if self.device != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, begin, end):
        return begin.elapsed_time(end) * 1e-3 if self.device == "cuda" else end - begin

    def step(self):
        for _ in range(self.micro_steps):
            tokens = self.batches[self.number % len(self.batches)]
            self.number += 1
            loss = self.model(tokens[:, :-1], tokens[:, 1:])
            (loss / self.micro_steps).backward()
        begin = self.now()
        self.update()
        end = self.now()
        value = loss.item()  # waits for the device
        self.update_seconds = self.seconds_between(begin, end)
        return value

    def update(self):
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        for master, p in zip(self.masters, self.weights):
            master.grad, p.grad = p.grad.float(), None
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)

    def seconds(self, limit):
        """The times of about `limit` seconds of steps, at least five, or two if they are long, and of their updates. The first
        call starts with two warm-up steps."""
        while self.number < 2 * self.micro_steps:
            self.step()
        steps, updates, began = [], [], time.monotonic()
        while time.monotonic() < began + limit or (len(steps) < 5 and time.monotonic() < began + 2 * limit) or len(steps) < 2:
            begin = time.perf_counter()
            self.loss = self.step()
            steps.append(time.perf_counter() - begin)
            updates.append(self.update_seconds)
        return steps, updates
