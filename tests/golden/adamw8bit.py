"""Golden values of one step of bitsandbytes' 8-bit AdamW on the CPU, with its own tables, from random codes. Weights before
decay_end decay. All codes stand for magnitudes of at least 1e-3 of their block's largest: for much smaller ones the library's
CPU code does not find the nearest value of its table."""
import bitsandbytes.functional as bnb
import torch

from common import DTYPES, random, save

N, BLOCK, STEP, LR, DECAY, SCALE = 300, 256, 3, 0.05, 0.1, 0.375


def main():
    maps = [bnb.create_dynamic_map(signed=True), bnb.create_dynamic_map(signed=False)]
    decays = torch.arange(N) < 2 * N // 3
    for name, dtype in DTYPES.items():
        g = torch.Generator().manual_seed(2)
        p = random(g, (N,), torch.float32, grad=False)
        gradient = random(g, (N,), dtype, grad=False)
        m = torch.randint(0, 256, (N,), generator=g, dtype=torch.uint8)
        v = torch.randint(80, 256, (N,), generator=g, dtype=torch.uint8)
        absmax = [torch.rand(2, generator=g) + 0.5 for _ in range(2)]
        after = []
        for decay in (DECAY, 0.0):
            state = [p.clone(), m.clone(), v.clone(), absmax[0].clone(), absmax[1].clone()]
            torch.ops.bitsandbytes.optimizer_update_8bit_blockwise(
                "adam", gradient.float(), state[0], state[1], state[2], 0.9, 0.999, 0.0, 0.0, 1e-8, STEP, LR, *maps, state[3],
                state[4], decay, SCALE, False)
            after.append(state)
        updated = torch.where(decays, after[0][0], after[1][0])
        save(f"adamw8bit_{name}", {
            "p_before": p, "m_before": m, "v_before": v, "m_absmax_before": absmax[0], "v_absmax_before": absmax[1],
            "g": gradient, "grad_scale": torch.tensor([SCALE]), "skip": torch.zeros(1, dtype=torch.int32), "p": updated,
            "m": after[0][1], "v": after[0][2], "m_absmax": after[0][3], "v_absmax": after[0][4],
            "copy": updated.to(dtype, copy=True)})


if __name__ == "__main__":
    main()
