"""Golden losses and gradients of a small model of each family that reads images, from Hugging Face transformers
(eager attention, f32).

Each file holds the parameters, their gradients under "grad." + name, the tokens of two sequences, targets, the summed
loss, and the images as models see them here: patches, their positions, where frames begin and the rows of the text that
they replace. Frames of idefics2 have several sizes, so transformers pads them; those of idefics3 are square. SmolVLM is
idefics3 under another name. Parameters of qwen2_vl and qwen2_5_vl have the names of published files, and windows at the
edges of images are smaller than others."""
import sys

import torch
import transformers as hf

from common import save

VOCAB, LENGTH, IMAGE_TOKEN, PATCH = 40, 30, 39, 4
TEXT = dict(vocab_size=VOCAB, num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=24, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None,
            rms_norm_eps=1e-5)
VISION = dict(hidden_size=144, num_attention_heads=2, intermediate_size=40, patch_size=PATCH)


def idefics2():
    config = hf.Idefics2Config(
        text_config=hf.MistralConfig(**TEXT, sliding_window=7),
        vision_config=dict(**VISION, num_hidden_layers=1, image_size=28),
        perceiver_config=dict(resampler_n_latents=3, resampler_depth=2, resampler_n_heads=4, resampler_head_dim=6,
                              num_key_value_heads=2, hidden_size=16),
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False, attn_implementation="eager")
    return hf.Idefics2ForConditionalGeneration(config), 7, [[(3, 5), (7, 7)], [(6, 2)]], lambda n_h, n_w: 3


def idefics3():
    config = hf.Idefics3Config(
        text_config=hf.LlamaConfig(**TEXT), vision_config=dict(**VISION, num_hidden_layers=2, image_size=24),
        scale_factor=2, image_token_id=IMAGE_TOKEN, tie_word_embeddings=False, pad_token_id=None,
        attn_implementation="eager")
    made = hf.Idefics3ForConditionalGeneration(config)
    return made, 6, [[(6, 6), (6, 6)], [(6, 6)]], lambda n_h, n_w: n_h * n_w // 4


QWEN_IMAGES = [[(4, 6), (2, 2)], [(10, 6)]]


def qwen(kind, **vision):
    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL"}[kind]
    text = {**TEXT, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = getattr(hf, name + "Config")(
        text_config=dict(**text, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}),
        vision_config=dict(num_heads=2, patch_size=PATCH, depth=2, **vision), image_token_id=IMAGE_TOKEN,
        tie_word_embeddings=False)
    config._attn_implementation = "eager"
    return getattr(hf, name + "ForConditionalGeneration")(config)


def qwen2_vl():
    return qwen("qwen2_vl", embed_dim=24, hidden_size=16, mlp_ratio=2)


def qwen2_5_vl():
    return qwen("qwen2_5_vl", hidden_size=24, out_hidden_size=16, intermediate_size=40, window_size=4 * PATCH,
                fullatt_block_indexes=[1])


def bucket(n, side):
    """Positions along a side of n patches, as fp32 computes them."""
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    at = torch.arange(n, dtype=torch.float32) * (1 / torch.tensor(n, dtype=torch.float32))
    return torch.bucketize(at.clamp(max=1 - 1e-6), bounds, right=True)


def inputs_of(side, images, rows_of):
    most = max(max(h, w) for sample in images for h, w in sample) * PATCH
    count = max(map(len, images))
    pixels = torch.zeros(len(images), count, 3, most, most)
    mask = torch.zeros(len(images), count, most, most, dtype=torch.bool)
    tokens = torch.randint(0, VOCAB - 1, (len(images), LENGTH))
    patches, positions, frames, rows = [], [], [0], []
    for i, sample in enumerate(images):
        at = 2
        for j, (h, w) in enumerate(sample):
            image = torch.randn(3, h * PATCH, w * PATCH)
            pixels[i, j, :, :h * PATCH, :w * PATCH] = image
            mask[i, j, :h * PATCH, :w * PATCH] = True
            patches.append(image.view(3, h, PATCH, w, PATCH).permute(1, 3, 0, 2, 4).reshape(h * w, -1))
            positions.append((bucket(h, side)[:, None] * side + bucket(w, side)[None]).flatten())
            frames.append(frames[-1] + h * w)
            n = rows_of(h, w)
            tokens[i, at:at + n] = IMAGE_TOKEN
            rows += range(i * LENGTH + at, i * LENGTH + at + n)
            at += n + 1
    own = {"tokens": tokens.int(), "patches": torch.cat(patches), "patch_positions": torch.cat(positions).int(),
           "frames": torch.tensor(frames).int(), "rows": torch.tensor(rows).int()}
    return own, dict(input_ids=tokens, pixel_values=pixels, pixel_attention_mask=mask)


def qwen_inputs():
    tokens = torch.randint(0, VOCAB - 1, (len(QWEN_IMAGES), LENGTH))
    grids, positions, frames, rows = [], [], [0], []
    for i, sample in enumerate(QWEN_IMAGES):
        at = 2
        for h, w in sample:
            grids.append((1, h, w))
            y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            positions.append(torch.stack([t.view(h // 2, 2, w // 2, 2).transpose(1, 2).flatten() for t in (y, x)]))
            frames.append(frames[-1] + h * w)
            n = h * w // 4
            tokens[i, at:at + n] = IMAGE_TOKEN
            rows += range(i * LENGTH + at, i * LENGTH + at + n)
            at += n + 2
    patches = torch.randn(frames[-1], 3 * 2 * PATCH * PATCH)
    own = {"tokens": tokens.int(), "patches": patches, "patch_positions": torch.cat(positions, 1).int(),
           "frames": torch.tensor(frames).int(), "rows": torch.tensor(rows).int()}
    return own, dict(input_ids=tokens, pixel_values=patches, image_grid_thw=torch.tensor(grids),
                     mm_token_type_ids=(tokens == IMAGE_TOKEN).int())


def published(name):
    """The name of a parameter in files, which is another than in memory for Qwen."""
    return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")


def main(names=()):
    for family, make in {"idefics2": idefics2, "idefics3": idefics3, "qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl}.items():
        if names and family not in names:
            continue
        torch.manual_seed(7)
        model, *shape = make() if family.startswith("idefics") else [make()]
        model = model.float()
        for p in model.parameters():  # biases and norms differ from 0 and 1, so that a swap is detected
            with torch.no_grad():
                p.add_(torch.randn_like(p) * 0.1)
        own, theirs = inputs_of(*shape) if shape else qwen_inputs()
        targets = torch.randint(0, VOCAB - 1, (2, LENGTH))
        targets[0, 3] = -100
        logits = model(**theirs).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), reduction="sum")
        loss.backward()
        out = {**own, "targets": targets.int(), "loss": loss.view(1)}
        for name, p in model.named_parameters():
            out[published(name)] = p
            out["grad." + published(name)] = p.grad
        save(f"model_{family}", out)


if __name__ == "__main__":
    main(sys.argv[1:])
