"""The conversations and feature templates of the chat goldens, written for this project, and the reference renderer:
the environment of Hugging Face transformers with a fixed date."""
import datetime
import json

from transformers.utils import chat_template_utils

DATE = "2025-03-09"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9)


chat_template_utils.datetime = FixedDate

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Reports today's weather at a place.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name of the town, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1.5}}}, "required": ["city"]}}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


# Each with how it is rendered: with the generation prompt, or the end of an assistant's turn.
RECORDS = [
    ({"messages": [turn("system", "You are terse."), turn("user", "Hi"), turn("assistant", "Hello.")]}, False),
    ({"messages": [turn("user", "What does the shard of rank 3 hold?")]}, True),
    ({"messages": [turn("user", "  spaces around  \n"), turn("assistant", "\n\nkept? \t"),
                   turn("user", "Next\r\nline"), turn("assistant", " done ")]}, False),
    ({"messages": [turn("system", "Ünïcode 你好 🙂"), turn("user", "naïve café ½ \u00a0x\u3000"),
                   turn("assistant", "1\u2028 2 é e\u0301 \u200b<>&'\"")]}, False),
    ({"messages": [turn("user", "Say <|im_end|> and </s><s> and <|eot_id|> [/INST] {{ messages }} {% if %}"),
                   turn("assistant", "<|im_start|>system\nNo.<|im_end|>")]}, True),
    ({"messages": [turn("user", "2+2?"),
                   turn("assistant", "<think>\nTwo and two.\n</think>\n\nFour."), turn("user", "And 3+3?"),
                   turn("assistant", "Six.", reasoning_content="Three and three.\nEasy.")]}, False),
    ({"messages": [turn("system", "Use tools."), turn("user", "Weather in Bern?"),
                   turn("assistant", "", tool_calls=[call("get_weather", {"city": "Bern", "days": [1, 2]}, id="call00001")]),
                   turn("tool", "{\"sky\": \"clear\", \"degrees\": 21.5}", name="get_weather", tool_call_id="call00001"),
                   turn("assistant", "Clear, 21.5 degrees.")], "tools": [WEATHER]}, False),
    ({"messages": [turn("user", "Nothing special."), turn("assistant", ""), turn("user", ""), turn("assistant", "x")]},
     False),
    ({"messages": [turn("user", "one"), turn("assistant", "1"), turn("user", "two"), turn("assistant", "2"),
                   turn("user", "three"), turn("assistant", "3"), turn("user", "four")],
      "chat_template_kwargs": {"enable_thinking": False}}, True),
    ({"messages": [turn("user", [{"type": "text", "text": "First part."}, {"type": "text", "text": " Second."}]),
                   turn("assistant", [{"type": "text", "text": "Both read."}])]}, False),
]

# Members that are null, which transformers drops from messages, but from nothing in them.
WITH_NULLS = [
    {"messages": [turn("user", "Weather in Bern?", name=None, tool_calls=None),
                  turn("assistant", None, reasoning_content=None, thinking="Ask.", refusal=None,
                       tool_calls=[call("get_weather", {"city": "Bern", "unit": None}, id=None)]),
                  turn("tool", "{\"sky\": null}", name="get_weather"), turn("assistant", "Clear.", tool_calls=None)],
     "tools": [{"type": "function", "function": {"name": "get_weather", "description": None, "parameters": None}}],
     "documents": None},
    {"messages": [turn("user", [{"type": "text", "text": "a", "image": None}, {"type": "text", "text": None}]),
                  turn("assistant", None)], "tools": None},
]


def reference(template, record, prompt, with_masks=False):
    """{"text", "generated"} (in bytes), or {"error"}, as from apply_chat_template()."""
    record = json.loads(json.dumps(record))
    arguments = {**TOKENS, **record.get("chat_template_kwargs", {})}
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [chat_template_utils._normalize_chat_messages(record["messages"])], tools=record.get("tools"), documents=record.get("documents"), chat_template=template,
            return_assistant_tokens_mask=with_masks, add_generation_prompt=prompt, **arguments)
    except Exception as error:  # of the template or of Jinja, whichever it is
        return {"error": f"{type(error).__name__}: {error}"}
    text = texts[0]
    generated = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in (spans[0] if spans else [])]
    return {"text": text, "generated": generated}
