"""Renders the built-in chat templates with the conversations of chat_cases.py, and the templates of chat_features.py
with one of them, in the environment of Hugging Face transformers (and jinja2). Writes chat.json."""
import glob
import json
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
from chat_cases import DATE, RECORDS, TOKENS, WITH_NULLS, reference
from chat_features import FEATURES, NULLS

FEATURE_RECORD = 6  # with a tool


def result(template, record, prompt):
    rendered = reference(template, record, prompt, "endgeneration" in template)
    rendered["generated"] = [span for span in rendered.get("generated", []) if span[0] < span[1]]
    # Which errors there are is the claim; their words are ours.
    return {"error": True} if "error" in rendered else rendered


def main():
    sources = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "../../text/chat/templates/*.jinja"))):
        with open(path, encoding="utf-8") as file:
            sources[os.path.basename(path)[:-len(".jinja")]] = file.read()
    named = {name: [result(source, record, prompt) for record, prompt in RECORDS] for name, source in sources.items()}
    features = [{"template": template, **result(template, RECORDS[FEATURE_RECORD][0], False)} for template in FEATURES]
    nulls = [{"json": json.dumps(record, ensure_ascii=False),
              "named": {name: result(source, record, False) for name, source in sources.items()},
              "features": [{"template": template, **result(template, record, False)} for template in NULLS]}
             for record in WITH_NULLS]
    golden = {"date": DATE, "tokens": TOKENS, "feature_record": FEATURE_RECORD,
              "records": [{"json": json.dumps(record, ensure_ascii=False), "prompt": prompt} for record, prompt in RECORDS],
              "named": named, "features": features, "nulls": nulls}
    with open(os.path.join(FOLDER, "chat.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
