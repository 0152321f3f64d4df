"""Golden values of the sums of squares of two chunks, and of torch.nn.utils.clip_grad_norm_ on gradients of
half the size."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(3)
        x = random(g, (700,), dtype, grad=False)
        # The first 301 elements are the end of a chunk.
        partials = torch.stack([part.double().square().sum() for part in (x[:301], x[301:])]).float()
        parameters = [torch.zeros(301, requires_grad=True), torch.zeros(399, requires_grad=True)]
        for parameter, part in zip(parameters, (x[:301], x[301:])):
            parameter.grad = part.float() * 0.5
        norm = torch.nn.utils.clip_grad_norm_(parameters, 2.5)
        largest = x.abs().argmax()
        coefficient = torch.cat([q.grad for q in parameters])[largest] / x[largest].float()
        save(f"sum_squares_{name}", {"x": x, "partials": partials, "norm": norm.reshape(1),
                                     "coefficient": coefficient.reshape(1),
                                     "nonfinite": torch.zeros(1, dtype=torch.int32)})


if __name__ == "__main__":
    main()
