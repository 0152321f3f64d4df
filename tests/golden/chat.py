"""Renders the built-in chat templates with the conversations of chat_cases.py, and the templates of chat_features.py
with one of them, in the environment of Hugging Face transformers (and jinja2). Writes chat.json."""
import glob
import json
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
from chat_cases import DATE, RECORDS, TOKENS, reference
from chat_features import FEATURES

FEATURE_RECORD = 6  # with a tool


def result(template, number, prompt):
    rendered = reference(template, RECORDS[number][0], prompt, "endgeneration" in template)
    rendered["generated"] = [span for span in rendered.get("generated", []) if span[0] < span[1]]
    # Which errors there are is the claim; their words are ours.
    return {"error": True} if "error" in rendered else rendered


def main():
    named = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "../../text/chat/templates/*.jinja"))):
        with open(path, encoding="utf-8") as file:
            source = file.read()
        named[os.path.basename(path)[:-len(".jinja")]] = [result(source, number, prompt)
                                                          for number, (_, prompt) in enumerate(RECORDS)]
    features = [{"template": template, **result(template, FEATURE_RECORD, False)} for template in FEATURES]
    golden = {"date": DATE, "tokens": TOKENS, "feature_record": FEATURE_RECORD,
              "records": [{"json": json.dumps(record, ensure_ascii=False), "prompt": prompt} for record, prompt in RECORDS],
              "named": named, "features": features}
    with open(os.path.join(FOLDER, "chat.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
