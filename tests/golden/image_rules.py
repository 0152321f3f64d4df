"""Golden images as models see them: what the image processors of transformers that work with Pillow make of noise.

image_rules.txt has a line for each: the rules (family, splits, patch size, image size, longest, shortest and tile edge, latents or
scale, filter; of qwen2_vl the most and fewest pixels in place of the longest and shortest edge), the size of the image and the seed of its noise; then tile rows and columns, frames, patches, tokens, and the hashes
of the patches, of their positions and of the text that stands for the image.
image_positions.txt has the buckets of n patches along a side: image size / patch size, n, buckets.

    python tests/golden/image_rules.py FILE [COUNT [SEED]]     writes other random ones, 100 by default, and

    FLATSHARD_IMAGE_RULES=FILE build/bin/flatshard_tests image_rules     checks these
"""
import os
import random
import sys

import numpy as np

from pixels import hash_of, noise

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIDES = (70, 32, 27, 26, 7)  # of published models and one that is small; those of others can depend on the width of PyTorch's vectors


def tokenizer():
    """Every character and every special token is a token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {chr(i): i for i in range(128)}
    inner = Tokenizer(models.WordLevel(alphabet, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?")


def text_of(family, processor, image):
    """The text that the processor gives its tokenizer in place of <image>."""
    inputs = processor(images=[[image]], text=["a<image><"])
    text = "".join(processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))
    assert text[0] == "a" and text[-1] == "<"
    return text[1:-1]


def processor_of(case):
    from transformers import (Idefics2ImageProcessorPil, Idefics2Processor, Idefics3ImageProcessorPil, Idefics3Processor, SmolVLMImageProcessorPil)

    resample = {"lanczos": 1, "bilinear": 2, "bicubic": 3}[case["filter"]]
    if case["family"] == "idefics2":
        images = Idefics2ImageProcessorPil(size={"longest_edge": case["longest"], "shortest_edge": case["shortest"]}, resample=resample,
                                           do_image_splitting=case["splits"])
        return Idefics2Processor(images, tokenizer(), image_seq_len=case["units"])
    kind = SmolVLMImageProcessorPil if case["scale_of_smolvlm"] else Idefics3ImageProcessorPil
    images = kind(size={"longest_edge": case["longest"]}, max_image_size={"longest_edge": case["tile"]}, resample=resample,
                  do_image_splitting=case["splits"], return_row_col_info=True)
    tokens = (case["tile"] // case["patch"] // case["units"]) ** 2
    return Idefics3Processor(images, tokenizer(), image_seq_len=tokens)


def buckets_of(grid, side):
    """Positions of a grid of patches (rows, columns), from the embedding of the model itself."""
    import torch
    from transformers import Idefics2VisionConfig
    from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionEmbeddings

    module = Idefics2VisionEmbeddings(Idefics2VisionConfig(hidden_size=1, num_attention_heads=1, image_size=side, patch_size=1))
    with torch.no_grad():
        for parameter in module.patch_embedding.parameters():
            parameter.zero_()
        module.position_embedding.weight.copy_(torch.arange(side * side)[:, None])
        return module(torch.zeros(1, 3, *grid), torch.ones(1, *grid, dtype=torch.bool))[0, :, 0].int().numpy()


def patches_of(frame, patch):
    """Rows of a frame (3, height, width): (patches, 3 * patch * patch)."""
    rows, columns = frame.shape[1] // patch, frame.shape[2] // patch
    frame = frame[:, :rows * patch, :columns * patch].reshape(3, rows, patch, columns, patch)
    return frame.transpose(1, 3, 0, 2, 4).reshape(rows * columns, -1), (rows, columns)


def qwen_line(case, image):
    import torch
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.vision_utils import get_vision_position_ids

    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": case["shortest"], "longest_edge": case["longest"]}, patch_size=case["patch"],
                                         merge_size=case["units"], temporal_patch_size=2, resample={"lanczos": 1, "bilinear": 2, "bicubic": 3}[case["filter"]])
    outputs = processor([image])
    rows, grid = np.asarray(outputs["pixel_values"]), np.asarray(outputs["image_grid_thw"])
    assert rows.dtype == np.float32
    positions = get_vision_position_ids(torch.tensor(grid), case["units"]).T.int().numpy()
    return 0, 0, 1, [rows], [np.ascontiguousarray(positions)], "<|image_pad|>" * (len(rows) // case["units"] ** 2), "<|image_pad|>"


def line_of(case):
    from PIL import Image

    image = Image.fromarray(noise(case["width"], case["height"], case["seed"]))
    if case["family"] == "qwen2_vl":
        return joined(case, *qwen_line(case, image))
    processor = processor_of(case)
    outputs = processor.image_processor([[image]])
    rows, positions, side = [], [], case["image_size"] // case["patch"]
    for values, mask in zip(outputs["pixel_values"][0], outputs["pixel_attention_mask"][0]):
        frame = np.asarray(values)[:, :int(mask[:, 0].sum()), :int(mask[0].sum())]
        assert frame.dtype == np.float32
        patches, grid = patches_of(frame, case["patch"])
        rows.append(patches)
        positions.append(buckets_of(grid, side))
    text = text_of(case["family"], processor, image)
    tiles = (outputs["rows"][0][0], outputs["cols"][0][0]) if case["family"] == "idefics3" else (0, 0)
    return joined(case, *tiles, len(rows), rows, positions, text, "<image>")


def joined(case, tile_rows, tile_columns, frames, rows, positions, text, marker):
    rules = [case[key] for key in ("family", "splits", "patch", "image_size", "longest", "shortest", "tile", "units", "filter", "width", "height", "seed")]
    found = [tile_rows, tile_columns, frames, sum(map(len, rows)), text.count(marker), hash_of(np.concatenate(rows)), hash_of(np.concatenate(positions)),
             hash_of(np.frombuffer(text.encode(), np.uint8))]
    return " ".join(str(int(x) if isinstance(x, bool) else x) for x in rules + found)


PUBLISHED = {
    "Idefics2": {"family": "idefics2", "patch": 14, "image_size": 980, "longest": 980, "shortest": 378, "tile": 0, "units": 64, "filter": "bilinear"},
    "Idefics3-8B": {"family": "idefics3", "patch": 14, "image_size": 364, "longest": 1456, "shortest": 0, "tile": 364, "units": 2, "filter": "lanczos"},
    "Qwen2.5-VL": {"family": "qwen2_vl", "patch": 14, "image_size": 14, "longest": 12845056, "shortest": 3136, "tile": 0, "units": 2, "filter": "bicubic"},
    "SmolVLM-256M": {"family": "idefics3", "patch": 16, "image_size": 512, "longest": 2048, "shortest": 0, "tile": 512, "units": 4, "filter": "lanczos"},
}


def published_cases():
    for name, splits, width, height in [("Idefics2", True, 600, 420), ("Idefics2", False, 1300, 700), ("Idefics3-8B", True, 640, 480),
                                        ("SmolVLM-256M", True, 300, 200), ("SmolVLM-256M", False, 300, 500),
                                        ("Qwen2.5-VL", False, 640, 427), ("Qwen2.5-VL", False, 20, 31), ("Qwen2.5-VL", False, 7, 900)]:
        yield {**PUBLISHED[name], "splits": splits, "width": width, "height": height, "seed": 1, "scale_of_smolvlm": name[0] == "S"}


def random_cases(count, seed, largest):
    dice = random.Random(seed)
    for i in range(count):
        patch, side, units = dice.randint(2, 8), dice.choice(SIDES), dice.randint(1, 3)
        case = {"patch": patch, "image_size": patch * side, "splits": dice.random() < 0.6, "seed": i, "scale_of_smolvlm": dice.random() < 0.5,
                "filter": dice.choice(["bilinear", "bicubic", "lanczos"]), "units": units}
        if dice.random() < 0.5:
            shortest = dice.randint(patch, 60)
            case.update(family="idefics2", shortest=shortest, longest=dice.randint(shortest, 200), tile=0)
        else:
            tile = patch * units * dice.randint(1, 6)
            case.update(family="idefics3", shortest=0, longest=dice.randint(1, min(5 * tile, 400)), tile=tile)
        case["width"], case["height"] = (max(2, round(largest ** dice.uniform(0.2, 1))) for _ in range(2))
        yield case


def random_qwen_cases(count, seed, largest):
    dice = random.Random(seed)
    for i in range(count):
        patch, units = dice.randint(2, 8), dice.randint(1, 3)
        square = (patch * units) ** 2
        fewest = dice.randint(1, 30 * square)
        width, height = (max(2, round(largest ** dice.uniform(0.2, 1))) for _ in range(2))
        if max(width, height) > 200 * min(width, height):
            continue
        yield {"family": "qwen2_vl", "patch": patch, "image_size": patch, "splits": False, "seed": i, "scale_of_smolvlm": False, "units": units,
               "filter": dice.choice(["bilinear", "bicubic", "lanczos"]), "shortest": fewest, "longest": fewest + dice.randint(0, 100 * square),
               "tile": 0, "width": width, "height": height}


def write(path, cases):
    with open(path, "w") as out:
        for case in cases:
            print(line_of(case), file=out)


def main():
    write(os.path.join(FOLDER, "image_rules.txt"), [*published_cases(), *random_cases(40, 1, 300), *random_qwen_cases(20, 1, 300)])
    with open(os.path.join(FOLDER, "image_positions.txt"), "w") as out:
        for side in SIDES:
            for n in range(1, 71):
                print(side, n, *buckets_of((n, n), side)[:n], file=out)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 100), (3, 2)))
        write(sys.argv[1], [*random_cases(count, seed, 1000), *random_qwen_cases(count, seed, 1000)])
    else:
        main()
