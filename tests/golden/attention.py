"""Golden values of attention from PyTorch, with an explicit mask: from scaled_dot_product_attention, and with a soft cap
of the scores. In models that read images, a query attends to all keys of its document;
some documents have no queries or no keys."""
import math

import torch
import torch.nn.functional as F

from common import DTYPES, random, save

LENGTHS, HQ, HKV, D, WINDOW, SOFTCAP = (9, 4), 4, 2, 8, 5, 0.5
# Queries and keys of each document, heads of queries and of keys, and the size of a head.
VISION = (((4, 0, 3), (4, 0, 3), 2, 2, 72), ((5, 2), (5, 2), 1, 1, 80), ((2, 1, 2, 0), (5, 0, 3, 2), 2, 1, 96))


def documents(lengths):
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def boundaries(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)


def causal_mask(lengths, window):
    document = documents(lengths)
    i, j = torch.arange(len(document))[:, None], torch.arange(len(document))[None, :]
    return (document[:, None] == document[None, :]) & (j <= i) & (j > i - window)


def attend(q, k, v, mask, capped):
    """(T, heads, D) in and out; also lse (Hq, T)."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // k.shape[0], 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if capped:
        scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
    scores = scores.masked_fill(~mask, -math.inf)
    some = mask.any(1)  # a query without keys gives zero
    if capped:
        o = scores.softmax(-1) @ v
    else:
        o = torch.zeros_like(q)
        o[:, some] = F.scaled_dot_product_attention(q[:, some], k, v, attn_mask=mask[some])
    return o.transpose(0, 1), scores.logsumexp(-1)


def golden(name, dtype, q, k, v, do, mask, capped, rows):
    # In f32 on rounded operands, so that only the results are rounded.
    x = [t.detach().float().requires_grad_() for t in (q, k, v)]
    o, lse = attend(*x, mask, capped)
    o.backward(do.float())
    save(name, {"q": q, "k": k, "v": v, "do": do, "o": o.to(dtype), "lse": lse, **rows,
                "dq": x[0].grad.to(dtype), "dk": x[1].grad.to(dtype), "dv": x[2].grad.to(dtype)})


def main():
    T, mask = sum(LENGTHS), causal_mask(LENGTHS, WINDOW)
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(1)
        q, k, v = (random(g, (T, heads, D), dtype) for heads in (HQ, HKV, HKV))
        do = random(g, (T, HQ, D), dtype, grad=False)
        for file, capped in (("attention", False), ("attention_capped", True)):
            golden(f"{file}_{name}", dtype, q, k, v, do, mask, capped, {"cu_seqlens": boundaries(LENGTHS)})
        for queries, keys, heads, key_heads, size in VISION:
            q, do = (random(g, (sum(queries), heads, size), dtype, grad=False) for _ in range(2))
            k, v = (random(g, (sum(keys), key_heads, size), dtype, grad=False) for _ in range(2))
            rows = {"cu_seqlens": boundaries(queries), "cu_seqlens_kv": boundaries(keys)}
            golden(f"attention_{size}_{name}", dtype, q, k, v, do,
                   documents(queries)[:, None] == documents(keys)[None, :], False, rows)


if __name__ == "__main__":
    main()
