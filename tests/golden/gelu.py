"""Golden values of the kinds of GELU, from PyTorch's autograd."""
import torch

from common import DTYPES, random, save

FILES = {
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
}


def main():
    for name, dtype in DTYPES.items():
        for file, function in FILES.items():
            g = torch.Generator().manual_seed(4)
            x = (random(g, (100,), dtype, grad=False) * 3).requires_grad_()
            dy = random(g, (100,), dtype, grad=False)
            # In f32 on rounded inputs, so that only the results are rounded.
            y = function(x.float())
            y.backward(dy.float())
            save(f"{file}_{name}", {"x": x, "dy": dy, "y": y.to(dtype), "dx": x.grad})


if __name__ == "__main__":
    main()
