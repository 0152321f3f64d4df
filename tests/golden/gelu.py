"""Golden values of both kinds of GELU, from PyTorch's autograd: gelu_KIND_DTYPE.safetensors."""
import torch

from common import DTYPES, random, save


def main():
    for kind, approximate in {"erf": "none", "tanh": "tanh"}.items():
        for name, dtype in DTYPES.items():
            g = torch.Generator().manual_seed(4)
            x = (random(g, (100,), dtype, grad=False) * 3).requires_grad_()
            dy = random(g, (100,), dtype, grad=False)
            y = torch.nn.functional.gelu(x, approximate=approximate)
            y.backward(dy)
            save(f"gelu_{kind}_{name}", {"x": x, "dy": dy, "y": y, "dx": x.grad})


if __name__ == "__main__":
    main()
