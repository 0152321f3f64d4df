"""Golden values of attention from PyTorch, with an explicit mask: from scaled_dot_product_attention, and with a soft cap
of the scores."""
import math

import torch
import torch.nn.functional as F

from common import DTYPES, random, save

LENGTHS, HQ, HKV, D, WINDOW, SOFTCAP = (9, 4), 4, 2, 8, 5, 0.5


def mask_of(lengths, window):
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    i, j = torch.arange(len(document))[:, None], torch.arange(len(document))[None, :]
    return (document[:, None] == document[None, :]) & (j <= i) & (j > i - window)


def attend(q, k, v, mask, capped):
    """(T, heads, D) in and out; also lse (Hq, T)."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(HQ // HKV, 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(D)
    if capped:
        scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
    scores = scores.masked_fill(~mask, -math.inf)
    o = scores.softmax(-1) @ v if capped else F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return o.transpose(0, 1), scores.logsumexp(-1)


def main():
    T, mask = sum(LENGTHS), mask_of(LENGTHS, WINDOW)
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        q, k, v = (random(g, (T, heads, D), dtype) for heads in (HQ, HKV, HKV))
        do = random(g, (T, HQ, D), dtype, grad=False)
        for file, capped in (("attention", False), ("attention_capped", True)):
            # In f32 on rounded operands, so that only the results are rounded.
            x = [t.detach().float().requires_grad_() for t in (q, k, v)]
            o, lse = attend(*x, mask, capped)
            o.backward(do.float())
            save(f"{file}_{name}", {
                "q": q, "k": k, "v": v, "do": do, "o": o.to(dtype), "lse": lse,
                "cu_seqlens": torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32),
                "dq": x[0].grad.to(dtype), "dk": x[1].grad.to(dtype), "dv": x[2].grad.to(dtype)})


if __name__ == "__main__":
    main()
