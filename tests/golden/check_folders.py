"""Loads model folders written by Flatshard in Hugging Face transformers and compares logits:

    build/bin/flatshard_tests "written folders" --keep                        prints the DIR that it keeps
    python tests/golden/check_folders.py DIR/written_folders/*/{step-4,model,adapter,merged} \\
        DIR/written_folders/published/exported

Folders with an adapter_config.json are loaded with PEFT, on the base that they name, which may have 4-bit weights. A folder
that does not exist is ignored. ours.safetensors in a folder holds tokens and the f32 logits that Flatshard computes for them;
where the model reads images, the tokens show those of image_answers.py, which transformers reads as the folder says. If a folder has a tokenizer, it must be that of
folders/llama, or give the tokens and ids of ours.json, which stands in folders of runs on GGUF files."""
import json
import os
import sys
import warnings

import peft
import tokenizers
import torch
import transformers as hf
from safetensors.torch import load_file

from image_answers import images_of, inputs_of

FROM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "folders", "llama")
# Relative to the largest logit: both sum in f32, in different orders, and large weights amplify the rounding.
MAX_ERROR = 2e-5
# The processors that work with Pillow, of models that read images.
PROCESSORS = {"idefics2": hf.Idefics2ImageProcessorPil, "idefics3": hf.Idefics3ImageProcessorPil, "smolvlm": hf.SmolVLMImageProcessorPil,
              "qwen2_vl": hf.Qwen2VLImageProcessorPil, "qwen2_5_vl": hf.Qwen2VLImageProcessorPil}


def config_of(folder):
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file)


def class_of(folder):
    return hf.AutoModelForImageTextToText if config_of(folder)["model_type"] in PROCESSORS else hf.AutoModelForCausalLM


def load_adapter(folder):
    config = peft.PeftConfig.from_pretrained(folder)
    model = class_of(folder).from_pretrained(config.base_model_name_or_path, dtype=torch.float32, attn_implementation="eager",
                                             device_map="cpu")
    four_bit = getattr(model, "is_loaded_in_4bit", False)
    if four_bit:
        for layer in model.modules():
            if hasattr(layer, "compute_dtype"):
                layer.compute_dtype = torch.float32
    own = config_of(folder)
    vocab = own.get("text_config", own)["vocab_size"]
    resized = vocab != model.config.get_text_config().vocab_size
    if resized:
        model.resize_token_embeddings(vocab)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        model = peft.PeftModel.from_pretrained(model, folder)
    # A tensor that the file has and the model lacks is not reported.
    written = set(load_file(os.path.join(folder, "adapter_model.safetensors")))
    known = set(peft.get_peft_model_state_dict(model, save_embedding_layers=resized))
    if any(".experts.0." in name for name in written):  # PEFT has one tensor for all experts
        written, known = ({name for name in names if ".experts." not in name} for names in (written, known))
    assert written <= known, f"{folder}: {written - known}"
    # In eval() bitsandbytes may repack 4-bit weights and multiply in bf16; these adapters have no dropout.
    return model.train() if four_bit else model.eval()


def load(folder):
    if os.path.exists(os.path.join(folder, "adapter_config.json")):
        return load_adapter(folder)
    model, info = class_of(folder).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    assert not problems, f"{folder}: {problems}"
    return model


def inputs_for(folder, tokens):
    config = config_of(folder)
    if config["model_type"] not in PROCESSORS:
        return {"input_ids": tokens}
    processor = PROCESSORS[config["model_type"]].from_pretrained(folder)
    return inputs_of(tokens, images_of(processor), config["image_token_id"])


def error_of(folder):
    ours = load_file(os.path.join(folder, "ours.safetensors"))
    model = load(folder)
    with torch.no_grad():
        theirs = model(**inputs_for(folder, ours["tokens"].long())).logits
    assert theirs.shape == ours["logits"].shape, f"{folder}: {theirs.shape}, {ours['logits'].shape}"
    return ((theirs - ours["logits"]).abs().max() / theirs.abs().max()).item()


def check_tokenizer(folder):
    ours, theirs = (hf.AutoTokenizer.from_pretrained(path) for path in (folder, FROM))
    chat = [{"role": "user", "content": "a wolf"}]
    assert ours("the fox").input_ids == theirs("the fox").input_ids == [3, 23, 11, 8, 3, 9, 18, 27], folder
    assert ours.decode(ours("the fox").input_ids) == "the fox", folder
    assert ours.apply_chat_template(chat, tokenize=False) == "a wolf</s>", folder
    assert hf.GenerationConfig.from_pretrained(folder).eos_token_id == 2, folder


def check_ids(folder):
    """Of a run on a GGUF file: every token has its id, in tokenizers, which reads tokenizer.json alone, and in transformers."""
    with open(os.path.join(folder, "ours.json")) as file:
        ours = json.load(file)
    alone = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    for id, token in enumerate(ours["tokens"]):
        assert alone.id_to_token(id) == token and alone.token_to_id(token) == id, f"{folder}: {id}, {token}: {alone.token_to_id(token)}"
    assert alone.get_vocab_size(with_added_tokens=True) == len(ours["tokens"]), folder
    assert alone.add_tokens(["<one more>"]) == 1 and alone.token_to_id("<one more>") == len(ours["tokens"]), folder
    whole = hf.AutoTokenizer.from_pretrained(folder)
    assert len(whole) == len(ours["tokens"]), folder
    for ends in (False, True):
        wanted = ours["with_ends" if ends else "ids"]
        assert alone.encode(ours["text"], add_special_tokens=ends).ids == wanted, folder
        assert whole(ours["text"], add_special_tokens=ends).input_ids == wanted, folder
    assert whole.decode(ours["ids"]) == alone.decode(ours["ids"], skip_special_tokens=False), folder


def main():
    folders = [folder for folder in sys.argv[1:] if os.path.exists(folder)]
    assert folders, __doc__
    errors = {folder: error_of(folder) for folder in folders}
    with_tokenizer = [f for f in folders if os.path.exists(os.path.join(f, "tokenizer.json"))]
    for folder in with_tokenizer:
        check_ids(folder) if os.path.exists(os.path.join(folder, "ours.json")) else check_tokenizer(folder)
    for folder, error in errors.items():
        print(f"{error:.2e}  {folder}")
    worst = max(errors.values())
    print(f"{len(errors)} folders, largest error {worst:.2e}, must be at most {MAX_ERROR:.0e}; "
          f"{len(with_tokenizer)} tokenizers")
    sys.exit(worst > MAX_ERROR)


if __name__ == "__main__":
    main()
