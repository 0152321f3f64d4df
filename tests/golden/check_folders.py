"""Opens folders that Flatshard wrote in Hugging Face transformers and compares logits:

    build/bin/flatshard_tests "written folders" --keep                        says where it keeps them
    python tests/golden/check_folders.py THERE/written_folders/*/{step-4,model}

ours.safetensors holds tokens, and the logits that the model here gives for them in f32."""
import os
import sys

import torch
import transformers as hf
from safetensors.torch import load_file

MOST = 1e-5  # relative to the largest logit: both sum in f32, in different orders


def error_of(folder):
    ours = load_file(os.path.join(folder, "ours.safetensors"))
    model, info = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                          output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    assert not problems, f"{folder}: {problems}"
    with torch.no_grad():
        theirs = model(input_ids=ours["tokens"].long()).logits
    assert theirs.shape == ours["logits"].shape, f"{folder}: {theirs.shape}, {ours['logits'].shape}"
    return ((theirs - ours["logits"]).abs().max() / theirs.abs().max()).item()


def main():
    folders = sys.argv[1:]
    assert folders, __doc__
    errors = {folder: error_of(folder) for folder in folders}
    for folder, error in errors.items():
        print(f"{error:.2e}  {folder}")
    worst = max(errors.values())
    print(f"{len(errors)} folders, largest error {worst:.2e}, must be at most {MOST:.0e}")
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
