"""Golden answers about images: the tokens that Hugging Face transformers (eager attention, f32) generates greedily with small random
models of each family that reads images.

image_answers/NAME has config.json, the weights, preprocessor_config.json, and expected.safetensors: the tokens of a prompt, in which
the pictures of images/ in IMAGES stand; the logits that follow it; the tokens that greedy generation appends; and the least distance of
their logits to the next best. Seeds are chosen for varied tokens and wide distances. Names as arguments make only these folders."""
import os
import shutil
import sys

import torch
import transformers as hf
from safetensors.torch import save_file

from common import FOLDER
from image_folders import write_json

VOCAB, IMAGE_TOKEN, PATCH, COUNT = 64, 63, 4, 30
IMAGES = ["rgb.jpeg", "orientation_6.jpeg"]
TEXT = dict(vocab_size=VOCAB, num_hidden_layers=2, hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48,
            max_position_embeddings=256, pad_token_id=None, bos_token_id=None, eos_token_id=None)
VISION = dict(hidden_size=24, num_attention_heads=2, intermediate_size=40, num_hidden_layers=2, patch_size=PATCH)
BOTH = dict(image_token_id=IMAGE_TOKEN, tie_word_embeddings=False)


def idefics2():
    config = hf.Idefics2Config(text_config=hf.MistralConfig(**TEXT), vision_config=dict(**VISION, image_size=32),
                               perceiver_config=dict(resampler_n_latents=3, resampler_depth=2, resampler_n_heads=4, resampler_head_dim=6,
                                                     num_key_value_heads=2, hidden_size=TEXT["hidden_size"]), **BOTH)
    settings = {"size": {"longest_edge": 32, "shortest_edge": 8}, "resample": 2, "do_image_splitting": True}
    return hf.Idefics2ForConditionalGeneration(config), hf.Idefics2ImageProcessorPil, settings, lambda seen: 3 * frames_of(seen)


def idefics3(kind="Idefics3"):
    config = getattr(hf, kind + "Config")(text_config=hf.LlamaConfig(**TEXT), vision_config=dict(**VISION, image_size=24), scale_factor=2,
                                          pad_token_id=None, **BOTH)
    settings = {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 24}, "resample": 1, "do_image_splitting": True}
    model = getattr(hf, kind + "ForConditionalGeneration")(config)
    return model, getattr(hf, kind + "ImageProcessorPil"), settings, lambda seen: 9 * frames_of(seen)


def qwen(kind, **vision):
    text = dict(**TEXT, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]})
    config = getattr(hf, kind + "Config")(text_config=text, vision_config=dict(num_heads=2, patch_size=PATCH, depth=2, **vision), **BOTH)
    settings = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 1024}
    size = {"shortest_edge": settings["min_pixels"], "longest_edge": settings["max_pixels"]}
    processor = lambda **_: hf.Qwen2VLImageProcessorPil(size=size, patch_size=PATCH)
    return getattr(hf, kind + "ForConditionalGeneration")(config), processor, settings, lambda seen: int(seen["image_grid_thw"].prod()) // 4


def qwen2_5_vl():
    return qwen("Qwen2_5_VL", hidden_size=24, out_hidden_size=TEXT["hidden_size"], intermediate_size=40, window_size=4 * PATCH,
                fullatt_block_indexes=[1])


# name: what makes a model, and a seed
FAMILIES = {
    "idefics2": (idefics2, 14),
    "idefics3": (idefics3, 22),
    "smolvlm": (lambda: idefics3("SmolVLM"), 25),
    "qwen2_vl": (lambda: qwen("Qwen2VL", embed_dim=24, hidden_size=TEXT["hidden_size"], mlp_ratio=2), 5),
    "qwen2_5_vl": (qwen2_5_vl, 14),
}


def frames_of(seen):
    return seen["pixel_values"].shape[1]


def write_folder(folder, make, seed):
    torch.manual_seed(seed)
    model, *rest = make()
    for p in model.parameters():  # so much that greedy text varies
        with torch.no_grad():
            p.add_(torch.randn_like(p) * (0.5 if p.ndim == 1 else 0.3))
    model.to(torch.bfloat16).save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    return type(model), *rest


def images_of(processor):
    from transformers.image_utils import load_image

    pictures = [load_image(os.path.join(FOLDER, "images", name)) for name in IMAGES]
    return [processor([[picture]] if hasattr(processor, "do_image_splitting") else [picture], return_tensors="pt") for picture in pictures]


def prompt_of(images, tokens_of):
    torch.manual_seed(0)
    parts = [torch.randint(0, IMAGE_TOKEN, (5,))]
    for seen in images:
        parts += [torch.full((tokens_of(seen),), IMAGE_TOKEN), torch.randint(0, IMAGE_TOKEN, (4,))]
    return torch.cat(parts)[None]


def inputs_of(prompt, images, image_token=IMAGE_TOKEN):
    if "image_grid_thw" in images[0]:
        return dict(input_ids=prompt, attention_mask=torch.ones_like(prompt), mm_token_type_ids=(prompt == image_token).int(),
                    pixel_values=torch.cat([seen["pixel_values"] for seen in images]),
                    image_grid_thw=torch.cat([seen["image_grid_thw"] for seen in images]))
    height, width = (max(seen["pixel_values"].shape[axis] for seen in images) for axis in (3, 4))

    def joined(key):
        return torch.cat([torch.nn.functional.pad(seen[key], (0, width - seen[key].shape[-1], 0, height - seen[key].shape[-2]))
                          for seen in images], 1)

    return dict(input_ids=prompt, attention_mask=torch.ones_like(prompt), pixel_values=joined("pixel_values"),
                pixel_attention_mask=joined("pixel_attention_mask"))


def expected_of(folder, kind, processor, tokens_of):
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    images = images_of(processor)
    prompt = prompt_of(images, tokens_of)
    made = model.generate(**inputs_of(prompt, images), max_new_tokens=COUNT, do_sample=False, eos_token_id=None, output_logits=True,
                          return_dict_in_generate=True)
    best = torch.cat(made.logits).topk(2).values
    return {"prompt": prompt[0].int(), "logits": made.logits[0][0].float(), "greedy": made.sequences[0, prompt.shape[1]:].int(),
            "margin": (best[:, 0] - best[:, 1]).min().view(1)}


def main(names=()):
    for name, (make, seed) in FAMILIES.items():
        if names and name not in names:
            continue
        folder = os.path.join(FOLDER, "image_answers", name)
        shutil.rmtree(folder, ignore_errors=True)
        kind, processor, settings, tokens_of = write_folder(folder, make, seed)
        write_json(os.path.join(folder, "preprocessor_config.json"), settings)
        expected = expected_of(folder, kind, processor(**settings), tokens_of)
        print(name, len(expected["prompt"]), expected["greedy"].tolist(), expected["margin"].item())
        save_file(expected, os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main(sys.argv[1:])
