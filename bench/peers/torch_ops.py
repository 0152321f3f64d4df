"""The ops of Flatshard's bench in PyTorch, on the same shapes: peers(label, device) creates the calls for a case.

As in the bench, calls cycle through several sets of arguments to defeat the caches. The name of a peer states how its work
differs."""
import re

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CACHES = 3 * 64 << 20  # the sets of arguments exceed this many bytes, as in the bench
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}

# In the order of importance.
PATTERNS = [r"attention_\w+ (16384|4\*4096) x 16/16 x 128 causal bf16", r"gemm (8192|16384) .* bf16", r"\w+norm_.* bf16",
            r"cross_entropy_\w+ \d{4,} x \d+ bf16", r"adamw .* bf16", r"attention_\w+ (16384|4\*4096) x 32/32 x 64 causal bf16",
            r"attention_\w+ .*/16 x 128 causal bf16", r"attention_\w+ .*/32 x 64 causal bf16", r"gemm \d{4,} .* bf16",
            r"attention_\w+ .* bf16"]


def ordered(labels, patterns):
    """The cases that have a peer and match a pattern, those of the first pattern first."""
    first = {}
    for pattern in patterns:
        for label in labels:
            if re.fullmatch(pattern, label) and "window" not in label and "+" not in label.replace("+=", ""):
                first.setdefault(label)
    return list(first)


class Rotation:
    """Calls f on the sets of arguments, cyclically."""

    def __init__(self, f, make, device):
        first = make()
        size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
        count = max(2, CACHES // max(size, 1) + 1) if device == "cuda" else 2
        self.f, self.sets, self.at = f, [first] + [make() for _ in range(min(count, 64) - 1)], 0

    def __call__(self):
        self.at = (self.at + 1) % len(self.sets)
        return self.f(*self.sets[self.at])


def random(shape, dtype, device, grad=False):
    return (3 * torch.rand(shape, device=device) - 1.5).to(dtype).requires_grad_(grad)


def compiled(f, device):
    return torch.compile(f, dynamic=False) if device == "cuda" else f


def backward_of(forward, make, grads_of, device):
    """Calls of the backward pass only: the forward passes of all sets of arguments run before."""
    def with_graph():
        arguments = make()
        y = forward(*arguments)
        return (y, torch.randn_like(y), *arguments)
    return Rotation(lambda y, dy, *arguments: torch.autograd.grad(y, grads_of(arguments), dy, retain_graph=True),
                    with_graph, device)


def deterministic(make):
    """The call in PyTorch's deterministic mode, in which a back end that has no such algorithm refuses it."""
    def in_mode(call):
        torch.use_deterministic_algorithms(True)
        try:
            return call()
        finally:
            torch.use_deterministic_algorithms(False)
    call = in_mode(make)
    return lambda: in_mode(call)


def attention(op, shape, dtype, device):
    rows, heads, head_dim, mask = re.match(r"(\S+) x (\S+) x (\d+) (causal|full)", shape).groups()
    batch, length = map(int, rows.split("*")) if "*" in rows else (1, int(rows))
    query_heads, key_heads = map(int, heads.split("/"))
    shapes = [(batch, h, length, int(head_dim)) for h in (query_heads, key_heads, key_heads)]
    backward = op == "attention_backward"

    def make():
        return tuple(random(s, dtype, device, grad=backward) for s in shapes)

    def forward_by(backend):
        def forward(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=query_heads != key_heads)
        return forward
    backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION} if device == "cuda" else \
        {"CPU": [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]}
    for name, backend in backends.items():
        f = forward_by(backend)
        if not backward:
            yield f"SDPA {name}", lambda f=f: Rotation(f, make, device)
            continue
        yield f"SDPA {name}", lambda f=f: backward_of(f, make, lambda a: a, device)
        yield f"SDPA {name}, deterministic", lambda f=f: deterministic(lambda: backward_of(f, make, lambda a: a, device))


def gemm(_, shape, dtype, device):
    M, N, K = map(int, re.match(r"(\d+) x (\d+) x (\d+)", shape).groups())
    at, bt, bias, adds = "a^T" in shape, "b^T" in shape, "bias" in shape, "c+=" in shape

    def make(c_dtype):
        return (random((K, M) if at else (M, K), dtype, device), random((N, K) if bt else (K, N), dtype, device),
                random((N,), dtype, device), torch.zeros((M, N), dtype=c_dtype, device=device))

    def product(a, b, row, c):
        a, b = a.t() if at else a, b.t() if bt else b
        if adds:
            return torch.addmm(c, a, b, out=c)
        return torch.addmm(row, a, b, out=c) if bias else torch.mm(a, b, out=c)
    name = "cuBLAS, added in bf16" if adds else "cuBLAS"
    yield name if device == "cuda" else "CPU", lambda: Rotation(product, lambda: make(dtype), device)


def norm(op, shape, dtype, device):
    rows, width = map(int, re.match(r"(\d+) x (\d+)", shape).groups())
    backward = op.endswith("backward")
    with_bias = op.startswith("layernorm")

    def forward(x, w, b):
        return F.layer_norm(x, (width,), w, b) if with_bias else F.rms_norm(x, (width,), w, 1e-5)

    def make():
        return (random((rows, width), dtype, device, backward), random((width,), dtype, device, backward),
                random((width,), dtype, device, backward))
    f = compiled(forward, device)
    name = "compiled" if device == "cuda" else "CPU"
    if backward:
        def wanted(arguments):
            return arguments if with_bias else arguments[:2]
        yield name + ", dx not added", lambda: backward_of(f, make, wanted, device)
    else:
        yield name, lambda: Rotation(f, make, device)


def cross_entropy(op, shape, dtype, device):
    rows, vocab = map(int, re.match(r"(\d+) x (\d+)", shape).groups())
    backward = op.endswith("backward")

    def loss(logits, targets):
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def make():
        return random((rows, vocab), dtype, device, backward), torch.randint(vocab, (rows,), device=device)
    f = compiled(loss, device)

    def loss_and_gradient(logits, targets):
        return torch.autograd.grad(f(logits, targets).sum(), logits)
    yield "compiled" if device == "cuda" else "CPU", lambda: Rotation(loss_and_gradient if backward else f, make, device)


def adamw(_, shape, __, device):
    count = int(re.match(r"\d+", shape).group())

    def make():
        p = random((count,), torch.float32, device, grad=True)
        p.grad = random((count,), torch.float32, device)
        return p, torch.optim.AdamW([p], lr=0.05, weight_decay=0.1, fused=True)
    yield "fused, fp32 gradient, no copy", lambda: Rotation(lambda p, optimizer: optimizer.step(), make, device)


MAKERS = {"attention": attention, "gemm": gemm, "rmsnorm": norm, "layernorm": norm, "cross": cross_entropy, "adamw": adamw}


def peers(label, device):
    """Pairs of a name and a function that creates the call."""
    torch._functorch.config.donated_buffer = False  # backward passes run many times on one graph
    op, rest = label.split(" ", 1)
    shape, dtype = rest.rsplit(" ", 1)
    return MAKERS[op.split("_")[0]](op, shape, DTYPES[dtype], device)

