"""Golden values of 4-bit quantization, from the CPU back end of bitsandbytes (needs bitsandbytes).

compare() quantizes many tensors, random ones and some made for the bounds of codes, for a comparison outside of the tests:
    python tests/golden/quantized.py FILE [ROUNDS]
"""
import os
import sys

import torch

from common import FOLDER

KINDS = ("nf4", "fp4")
BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FP4_BOUNDS = (0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333)


def quantize(x, kind, block, nested):
    """The tensors of one case: codes and scales of x, and the decoded values."""
    from bitsandbytes import functional as F
    codes, state = F.quantize_4bit(x, blocksize=block, quant_type=kind)
    case = {"codes": codes.flatten(), "absmax": state.absmax}
    for name, dtype in DTYPES.items():
        state.dtype = dtype
        case["y_" + name] = F.dequantize_4bit(codes, state).flatten()
    if nested:
        state = F.quantize_4bit(x, blocksize=block, quant_type=kind, compress_statistics=True)[1]
        restored = F.dequantize_blockwise(state.absmax, state.state2) + state.offset
        case |= {"scale_codes": state.absmax, "nested_absmax": state.state2.absmax, "nested_table": state.state2.code,
                 "nested_offset": state.offset.reshape(1), "restored": restored.float()}
    return case


def at_bounds(kind, n, g):
    """Values at the bounds of codes, and up to two floats away from them; each block has absmax 1."""
    from bitsandbytes import functional as F
    table = F.get_4bit_type(kind, device="cpu").sort()[0]
    bounds = (table[1:] + table[:-1]) / 2
    if kind == "fp4":
        bounds = torch.cat([bounds, torch.tensor(FP4_BOUNDS), -torch.tensor(FP4_BOUNDS)])
    x = bounds[torch.randint(0, len(bounds), (n,), generator=g)]
    steps = torch.randint(-2, 3, (n,), generator=g)
    for _ in range(2):
        x = torch.where(steps == 0, x, torch.nextafter(x, 9.0 * steps))
        steps -= steps.sign()
    x[::32] = 1
    return x


def inputs(kind, n, g):
    def normal():
        return torch.randn(n, generator=g)
    yield "normal", normal()
    yield "weights", normal() * 0.02
    yield "uniform", torch.rand(n, generator=g) * 2 - 1
    yield "heavy tails", normal() ** 5
    yield "half zeros", torch.where(torch.rand(n, generator=g) < 0.5, 0.0, normal())
    yield "grid of 1/64", torch.round(normal() * 64) / 64
    yield "subnormal", normal() * 1e-41
    yield "tiny", normal() * 1e-37
    yield "huge", normal().clamp(-3, 3) * 1e38
    yield "equal magnitudes", normal().sign()
    yield "at bounds", at_bounds(kind, n, g)
    yield "at bounds * 0.37", at_bounds(kind, n, g) * 0.37


def compare(path, rounds):
    """Writes cases of all kinds, block sizes and dtypes, with odd lengths and short last blocks. Names are
    "KIND BLOCK DTYPE INPUT NUMBER.TENSOR"."""
    from safetensors.torch import save_file
    g = torch.Generator().manual_seed(7)
    tensors, number = {}, 0
    for r in range(rounds):
        for kind in KINDS:
            for block in BLOCKS:
                for n in (8 * block, 5 * block + 2 * (r % (block // 2)), 3 * block + 2 * (r % 7) + 1):
                    for name, x in inputs(kind, n, g):
                        for dtype, torch_dtype in DTYPES.items():
                            rounded = x.to(torch_dtype)
                            if not rounded.isfinite().all():
                                continue
                            number += 1
                            key = f"{kind} {block} {dtype} {name} {number}."
                            tensors |= {key + part: t.contiguous() for part, t in
                                        {"x": rounded, **quantize(rounded, kind, block, True)}.items()}
    save_file(tensors, path)
    print(number, "cases")


def main():
    from safetensors.torch import save_file
    x = torch.randn(4327, generator=torch.Generator().manual_seed(1)) * 0.02
    tensors = {"x": x}
    for kind in KINDS:
        for block in (32, 64, 512, 4096):
            case = quantize(x, kind, block, block == 32)
            kept = ("codes", "absmax", "y_bf16") if block == 64 else ("codes", "absmax", "scale_codes", "nested_absmax",
                                                                    "nested_table", "nested_offset", "restored")
            tensors |= {f"{kind}_{block}.{part}": t.contiguous() for part, t in case.items() if part in kept}
    save_file(tensors, os.path.join(FOLDER, "quantized.safetensors"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        compare(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    else:
        main()
