"""Golden values of the ordered sum over six lanes."""
from common import DTYPES, random, save

import torch


def main():
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(4)
        lanes = random(g, (6, 40), dtype, grad=False)
        l = lanes.float()
        save(f"ordered_sum_{name}", {"lanes": lanes, "y": ((l[0] + l[1]) + (l[2] + l[3])) + (l[4] + l[5])})


if __name__ == "__main__":
    main()
