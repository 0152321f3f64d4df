"""Golden folders of models that read images, as far as the text library reads them, and what the processors of transformers make
of conversations that show the pictures of tests/golden/images.

image_folders/NAME: a small tokenizer, a chat template, config.json, and the configuration of the processor, in the form of
published folders or in that of transformers 5. image_folders/chats.jsonl: the conversations, whose images lie beside the folders.
image_folders/expected.jsonl: for each NAME and conversation the ids, and hash and number of the patches of its images.
"""
import json
import os
import shutil

import numpy as np
import transformers

from image_rules import patches_of
from pixels import hash_of

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "image_folders")

TEMPLATE = ("{% for message in messages %}{{message['role'].capitalize()}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}"
            "{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == "
            "'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}"
            "{% endif %}")
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% for part in message['content'] %}{% if part['type'] == "
          "'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TILES = [f"<row_{i + 1}_col_{j + 1}>" for i in range(6) for j in range(6)]
VISION = {"image_size": 64, "patch_size": 8}
IDEFICS2 = {"size": {"longest_edge": 64, "shortest_edge": 16}, "resample": 2}
IDEFICS3 = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "resample": 1}
QWEN = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
PIXELS = (600, 3000)

# name: family, tokenizer, with splits, in the form of transformers 5
FOLDERS = {
    "idefics2": ("idefics2", "llama2", True, False),
    "idefics2_whole": ("idefics2", "llama2", False, True),
    "idefics3": ("idefics3", "gpt2", True, False),
    "idefics3_whole": ("idefics3", "gpt2", False, True),
    "smolvlm": ("smolvlm", "gpt2", True, True),
    "qwen2_vl": ("qwen2_vl", "gpt2", False, False),
    "qwen2_5_vl": ("qwen2_5_vl", "gpt2", False, True),
}


def is_qwen(family):
    return family.startswith("qwen")


def chats():
    def part_of(text):
        if not text.endswith((".png", ".jpeg", ".webp")):
            return {"type": "text", "text": text}
        name = "../images/" + text.removeprefix("object ")
        return {"type": "image", "image": {"path": name}} if text.startswith("object ") else {"type": "image", "path": name}

    def message(role, *parts):
        return {"role": role, "content": [part_of(part) for part in parts]}

    answer = message("assistant", "the loss")
    for question in (["rgb.jpeg", "What's here?"], ["rgb.jpeg", " What"], ["rgb_8.png", "\nWhat"], ["rgb_8.png", "<b>"],
                     ["rgb.webp", "\u00a0a"], ["gray.jpeg", "\u4f60"], ["Look: ", "orientation_6.jpeg", ", and ", "xmp.jpeg", "."],
                     ["orientation_3.jpeg", "rgb.jpeg"], ["gray_8.png", "rgb.jpeg", "rgb.webp", "Compare."], ["The loss?"],
                     ["rgba_8.png", "object rgba_8.png", "rgba.webp", "object rgba.webp", "palette_8.png", "object palette_8.png", "Transparent."]):
        yield [message("user", *question), answer]
    yield [message("system", "Be brief."), message("user", "rgb.jpeg", "One?"), answer, message("user", "Two: ", "gray.jpeg"), answer]


def tokenizer_of(name, family):
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_file(os.path.join(HERE, "tokenizers", name, "tokenizer.json"))
    special = ["<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    if is_qwen(family):
        special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    elif family != "idefics2":
        special += ["<global-img>", *TILES]
    inner.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")


class QwenProcessor(transformers.Qwen2VLProcessor):
    """Without a video processor, which needs torchvision."""

    @classmethod
    def get_attributes(cls):
        return ["image_processor", "tokenizer"]


def processor_of(name):
    family, tokenizer, splits, _ = FOLDERS[name]
    if is_qwen(family):
        images = transformers.Qwen2VLImageProcessorPil(**QWEN, size=dict(zip(("shortest_edge", "longest_edge"), PIXELS)))
        return QwenProcessor(images, tokenizer_of(tokenizer, family), chat_template=CHATML)
    kind = {"idefics2": "Idefics2", "idefics3": "Idefics3", "smolvlm": "SmolVLM"}[family]
    images = getattr(transformers, kind + "ImageProcessorPil")(**(IDEFICS2 if family == "idefics2" else IDEFICS3), do_image_splitting=splits)
    text = "Idefics2" if family == "idefics2" else "Idefics3"  # SmolVLM's writes images the same way, and needs video libraries
    tokens = 3 if family == "idefics2" else (32 // 8 // 2) ** 2
    return getattr(transformers, text + "Processor")(images, tokenizer_of(tokenizer, family), image_seq_len=tokens, chat_template=TEMPLATE)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def write_folder(name, processor):
    family, _, splits, new_form = FOLDERS[name]
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder)
    processor.tokenizer.backend_tokenizer.save(os.path.join(folder, "tokenizer.json"))
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"})
    config = {"model_type": family, "image_token_id": processor.image_token_id,
              "vision_config": {"patch_size": QWEN["patch_size"]} if is_qwen(family) else VISION}
    if family == "idefics2":
        config["perceiver_config"] = {"resampler_n_latents": 3}
    write_json(os.path.join(folder, "config.json"), config)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
        file.write(processor.chat_template)
    if is_qwen(family):
        fewest, most = PIXELS
        if new_form:
            images = {**QWEN, "size": {"shortest_edge": fewest, "longest_edge": most}}
            return write_json(os.path.join(folder, "processor_config.json"), {"image_processor": images})
        return write_json(os.path.join(folder, "preprocessor_config.json"), {**QWEN, "min_pixels": fewest, "max_pixels": most})
    images = {**(IDEFICS2 if family == "idefics2" else IDEFICS3), "do_image_splitting": splits}
    both = {"image_seq_len": processor.image_seq_len}
    if new_form:
        write_json(os.path.join(folder, "processor_config.json"), {**both, "image_processor": images})
    else:
        write_json(os.path.join(folder, "processor_config.json"), both)
        write_json(os.path.join(folder, "preprocessor_config.json"), images)


def images_of(messages):
    """Paths, and of an image that is an object the picture that the library datasets makes of it."""
    from PIL import Image, ImageOps

    path_of = lambda name: os.path.join(FOLDER, name)
    return [path_of(part["path"]) if "path" in part else ImageOps.exif_transpose(Image.open(path_of(part["image"]["path"])))
            for message in messages for part in message["content"] if part["type"] == "image"]


def seen(processor, messages):
    """The ids, and the patches of all frames."""
    text, images = processor.apply_chat_template(messages), images_of(messages)
    inputs = processor(text=[text], images=[images]) if images else processor(text=[text])
    rows = [np.zeros((0, 3 * 8 * 8), np.float32)]
    if images and "image_grid_thw" in inputs:
        rows = [np.asarray(inputs["pixel_values"])]
    elif images:
        for values, mask in zip(inputs["pixel_values"][0], inputs["pixel_attention_mask"][0]):
            frame = np.asarray(values)[:, :int(mask[:, 0].sum()), :int(mask[0].sum())]
            rows.append(patches_of(frame, 8)[0])
    rows = np.concatenate(rows).astype(np.float32)
    return {"ids": [int(x) for x in inputs["input_ids"][0]], "patches": len(rows), "hash": hash_of(rows)}


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    with open(os.path.join(FOLDER, "chats.jsonl"), "w") as file:
        for messages in chats():
            print(json.dumps({"messages": messages}), file=file)
    with open(os.path.join(FOLDER, "expected.jsonl"), "w") as file:
        for name in FOLDERS:
            processor = processor_of(name)
            write_folder(name, processor)
            for messages in chats():
                print(json.dumps({"folder": name, **seen(processor, messages)}), file=file)


if __name__ == "__main__":
    main()
