"""Regenerates the golden files: python tests/golden/make.py [stem ...]   (needs torch, transformers, peft, trl, bitsandbytes, tokenizers, safetensors, tensorboard, pyarrow, pillow 13, gguf and llama-cpp-python)"""
import glob
import importlib
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, folder)
stems = sys.argv[1:] or sorted(
    os.path.basename(path)[:-3] for path in glob.glob(os.path.join(folder, "*.py"))
    if os.path.basename(path) not in ("chat_cases.py", "chat_features.py", "check_folders.py", "common.py", "make.py", "pixels.py", "published_templates.py", "random_mixtures.py"))
for stem in stems:
    importlib.import_module(stem).main()
    print("made", stem)
