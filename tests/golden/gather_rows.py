"""Golden values of gathered, scattered and added rows, from PyTorch's index_select, index_copy and index_add."""
import torch

from common import DTYPES, random, save


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(6)
        table, x = random(g, (9, 12), dtype, grad=False), random(g, (5, 12), dtype, grad=False)
        before = random(g, (9, 12), dtype, grad=False)
        index = torch.randperm(9, generator=g)[:5]
        save(f"gather_rows_{name}", {"table": table, "x": x, "index": index.int(),
                                     "gathered": table.index_select(0, index),
                                     "scattered_before": before, "scattered": before.index_copy(0, index, x),
                                     "summed_before": before.clone(), "summed": before.index_add(0, index, x)})


if __name__ == "__main__":
    main()
