"""Makes the files of the corpus: what libFuzzer starts from, and what every test run tries (tests/fuzz/file_fuzz_test.cpp
says which are refused, and why). Needs nothing but Python: python tests/fuzz/corpus/make.py"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent


def put(target, name, data):
    folder = HERE / target
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


# --- safetensors ---------------------------------------------------------------------------------------------------


def with_length(header, data=b""):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header)) + header + data


def tensor(name, dtype, shape, begin, end):
    return f'"{name}":{{"dtype":"{dtype}","shape":{json.dumps(shape)},"data_offsets":[{begin},{end}]}}'


def safetensors(name, *tensors, data=0):
    put("safetensors", name, with_length("{" + ",".join(tensors) + "}", bytes(data)))


def make_safetensors():
    four = tensor("test", "I32", [2, 2], 0, 16)
    safetensors("empty_set")
    safetensors("four_numbers", four, data=16)
    safetensors("scalar", tensor("test", "I32", [], 0, 4), data=4)
    safetensors("no_numbers", tensor("test", "I32", [2, 0], 0, 0))
    safetensors("metadata", '"__metadata__":{"format":"pt"}', tensor("a", "BF16", [3], 0, 6), data=6)
    safetensors("out_of_order", tensor("b", "F16", [2], 4, 8), tensor("a", "F32", [1], 0, 4), data=8)
    safetensors("packed_bits", tensor("a", "F4", [2], 0, 1), tensor("b", "F6_E2M3", [4], 1, 4), data=4)
    put("safetensors", "white_space", with_length("\t\n{}\r "))

    put("safetensors", "no_bytes", b"")
    put("safetensors", "only_length", struct.pack("<Q", 60))
    put("safetensors", "length_too_large", bytes.fromhex("3c00000000ffffff") + b"{}")
    put("safetensors", "length_wraps", b"\xff" * 8 + b"{}")
    put("safetensors", "length_past_end", struct.pack("<Q", 99) + b"{}")
    put("safetensors", "bad_utf8", with_length(b"\xff"))
    put("safetensors", "surrogate", with_length(b'{"\xed\xa0\x80":1}'))
    put("safetensors", "byte_order_mark", with_length(b"\xef\xbb\xbf{}"))
    put("safetensors", "zero_byte", with_length(b"{}\0"))
    put("safetensors", "not_json", with_length("{"))
    put("safetensors", "deep", with_length("[" * 300 + "]" * 300))
    put("safetensors", "deep_unclosed", with_length('{"a":{"shape":' + "[" * 300))
    put("safetensors", "array", with_length("[]"))
    put("safetensors", "trailing_bytes", with_length("{" + four + "}", bytes(16)) + b"polyglot")
    put("safetensors", "cut_off", with_length("{" + four + "}", bytes(14)))
    safetensors("duplicate", four, four, data=16)
    safetensors("overlap", four, tensor("u", "I32", [2, 2], 8, 24), data=24)
    safetensors("same_place", four, tensor("u", "I32", [2, 2], 0, 16), data=16)
    safetensors("hole", four, tensor("u", "I32", [1], 20, 24), data=24)
    safetensors("hole_at_start", tensor("u", "I32", [1], 4, 8), data=8)
    safetensors("backwards", tensor("u", "I32", [0], 0, 0), tensor("v", "I32", [1], 4, 0), data=4)
    safetensors("wrong_size", tensor("test", "I32", [2, 2], 0, 4), data=4)
    safetensors("product_overflow", tensor("test", "I32", [2, 18446744073709551614], 0, 16), data=16)
    safetensors("bytes_overflow", tensor("test", "I32", [2, 9223372036854775807], 0, 16), data=16)
    safetensors("extent_overflow", tensor("test", "I32", [0, 18446744073709551615], 0, 0))
    safetensors("number_overflow", tensor("test", "I32", [18446744073709551616], 0, 0))
    safetensors("negative", tensor("test", "I32", [-1], 0, 4), data=4)
    safetensors("fraction", '"t":{"dtype":"I32","shape":[1.0],"data_offsets":[0,4]}', data=4)
    safetensors("half_a_byte", tensor("test", "F4", [1], 0, 0))
    safetensors("unknown_dtype", tensor("test", "Q7", [1], 0, 1), data=1)
    safetensors("member_missing", '"t":{"dtype":"I32","shape":[1]}', data=4)
    safetensors("member_unknown", '"t":{"dtype":"I32","shape":[0],"data_offsets":[0,0],"x":0}')
    safetensors("metadata_number", '"__metadata__":{"format":1}')


# --- model.safetensors.index.json ----------------------------------------------------------------------------------
# of a folder that has the tensors a, b (8 and 3 bytes) in a first file, and c (8 bytes) in a second

FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
WEIGHT_MAP = {"a": FILES[0], "b": FILES[0], "c": FILES[1]}


def index(name, total=19, **changes):
    weight_map = {k: v for k, v in {**WEIGHT_MAP, **changes}.items() if v is not None}
    put("index", name, json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


def make_index():
    index("three_tensors")
    index("float_total", total=19.0)
    put("index", "no_total", json.dumps({"weight_map": WEIGHT_MAP}))
    put("index", "more_metadata", json.dumps({"metadata": {"x": [{}]}, "weight_map": WEIGHT_MAP}))
    index("left_out", total=16, b=None)

    put("index", "nothing", "")
    put("index", "cut_off", json.dumps({"weight_map": WEIGHT_MAP})[:60])
    put("index", "bad_utf8", b'{"weight_map":{"\xff":"x"}}')
    put("index", "deep", '{"metadata":' + "[" * 2000 + "]" * 2000 + "}")
    put("index", "duplicate", '{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}')
    put("index", "no_map", "{}")
    put("index", "map_array", '{"weight_map":["a"]}')
    put("index", "file_number", '{"weight_map":{"a":1}}')
    index("folder_above", a="../model.safetensors")
    index("absolute", a="/model.safetensors")
    index("folder_below", a="x/model.safetensors")
    index("zero_byte", a="x\0.safetensors")
    index("other_kind", a="config.json")
    index("no_such_file", a="model-00003-of-00002.safetensors")
    index("other_file", c=FILES[0])
    index("no_such_tensor", d=FILES[0])
    index("wrong_total", total=20)
    index("negative_total", total=-19)
    index("large_total", total=1e300)
    put("index", "infinite_total", '{"metadata":{"total_size":1e999},"weight_map":{}}')


# --- 4-bit weights in a safetensors file -----------------------------------------------------------------------------

FOUR_BITS = {"quant_type": "nf4", "blocksize": 32, "dtype": "float32", "shape": [3, 15]}
NESTED = {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}
NF4 = [i / 8 - 1 for i in range(16)]


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def quantized(name, state=FOUR_BITS, suffix="nf4", codes=("U8", [23, 1], bytes(range(23))), text=None, **changes):
    """A weight a.weight of 3 x 15 values in two blocks; None leaves a part out."""
    nested = "nested_offset" in state
    text = (text or json.dumps(state)).encode()
    parts = {"": codes, "absmax": ("U8", [2], b"\7\x80") if nested else ("F32", [2], floats(0.5, 2)),
             "quant_map": ("F32", [16], floats(*NF4)),
             "quant_state.bitsandbytes__" + suffix: ("U8", [len(text)], text)}
    if nested:
        parts["nested_absmax"] = ("F32", [1], floats(0.25))
        parts["nested_quant_map"] = ("F32", [256], floats(*range(256)))
    parts.update(changes)
    tensors, data = [], b""
    for part, content in parts.items():
        if content:
            key = "a.weight" + (part and "." + part)
            tensors.append(tensor(key, content[0], content[1], len(data), len(data) + len(content[2])))
            data += content[2]
    put("quantized", name, with_length("{" + ",".join(tensors) + "}", data))


def make_quantized():
    quantized("plain")
    quantized("nested", dict(FOUR_BITS, **NESTED))
    quantized("fp4", dict(FOUR_BITS, quant_type="fp4"), suffix="fp4")
    quantized("packed_bf16", dict(FOUR_BITS, shape=[4, 8]), codes=("BF16", [8, 1], bytes(16)),
              absmax=("F32", [1], floats(1)))
    put("quantized", "no_weights", with_length("{" + tensor("a", "F32", [1], 0, 4) + "}", bytes(4)))

    quantized("no_codes", codes=None)
    quantized("few_codes", codes=("U8", [22, 1], bytes(22)))
    quantized("other_codes", codes=("I8", [23, 1], bytes(23)))
    quantized("few_scales", absmax=("F32", [1], floats(1)))
    quantized("scales_of_nested", absmax=("U8", [2], bytes(2)))
    quantized("no_table", quant_map=None)
    quantized("short_table", quant_map=("F32", [15], floats(*NF4[1:])))
    quantized("infinite_scale", absmax=("F32", [2], floats(1, float("inf"))))
    quantized("nested_is_missing", dict(FOUR_BITS, **NESTED), nested_absmax=None)
    quantized("nested_is_unexpected", nested_absmax=("F32", [1], floats(1)))
    quantized("other_name", suffix="fp4")
    quantized("two_states", **{"quant_state.x": ("U8", [2], b"{}")})
    quantized("no_state", **{"quant_state.bitsandbytes__nf4": None})
    quantized("not_json", text="{")
    quantized("unknown_member", dict(FOUR_BITS, scale=1))
    quantized("huge_shape", dict(FOUR_BITS, shape=[2**31 - 1, 2**31 - 1]))
    quantized("overflow", dict(FOUR_BITS, shape=[2**32, 2**32]))
    quantized("odd_block", dict(FOUR_BITS, blocksize=33))
    quantized("half_nested", dict(FOUR_BITS, nested_offset=1.0))


# --- config.json ---------------------------------------------------------------------------------------------------

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": 128,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_inner": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config(name, base=LLAMA, **changes):
    put("config", name, json.dumps({**base, **changes}, indent=1))


def make_config():
    config("llama")
    config("llama3_scaling", rope_scaling=LLAMA3)
    config("new_spelling", rope_parameters={"rope_theta": 10000.0, **LLAMA3})
    config("mistral", model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=5)
    config("qwen2", model_type="qwen2", architectures=None, use_sliding_window=True, max_window_layers=0)
    config("qwen3", model_type="qwen3", architectures=None, layer_types=["full_attention"] * 2, head_dim=6)
    config("gpt2", GPT2)
    config("gemma2", model_type="gemma2", architectures=None, sliding_window=5, query_pre_attn_scalar=16, head_dim=6,
           layer_types=["sliding_attention", "full_attention"], attn_logit_softcapping=50.0, final_logit_softcapping=None)
    config("gemma3", model_type="gemma3_text", architectures=None, sliding_window=5, query_pre_attn_scalar=16, head_dim=6,
           layer_types=["sliding_attention", "full_attention"], rope_theta=None,
           rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    config("phi3_longrope", model_type="phi3", architectures=None, original_max_position_embeddings=64,
           partial_rotary_factor=0.5,
           rope_scaling={"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4})
    config("few_factors", model_type="phi3", architectures=None,
           rope_scaling={"type": "longrope", "short_factor": [1.0, "2"], "long_factor": []})
    config("yarn", rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "mscale": 1.0, "mscale_all_dim": 0.5,
                                 "truncate": False, "original_max_position_embeddings": 32})
    config("granite", model_type="granite", architectures=["GraniteForCausalLM"], embedding_multiplier=12.0,
           attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0)
    config("glm4", model_type="glm4", architectures=None, head_dim=16, attention_bias=True, partial_rotary_factor=0.5)
    config("smollm3", model_type="smollm3", architectures=None, no_rope_layers=[1, 0], no_rope_layer_interval=2)
    config("odd_no_rope_layers", model_type="smollm3", architectures=None, no_rope_layers=[1, "0"])

    put("config", "nothing", "")
    put("config", "cut_off", json.dumps(LLAMA)[:100])
    put("config", "bad_utf8", b'{"model_type":"\xff"}')
    put("config", "array", "[]")
    put("config", "duplicate", '{"model_type":"llama","model_type":"gpt2"}')
    put("config", "deep", '{"model_type":' + "[" * 2000 + "]" * 2000 + "}")
    put("config", "number_overflow", '{"model_type":"llama","num_hidden_layers":1e999}')
    config("no_such_family", model_type="rnn")
    config("many_layers", num_hidden_layers=2147483647)
    config("too_large", hidden_size=18446744073709551615)
    config("negative", num_attention_heads=-1)
    config("no_heads", num_attention_heads=0)
    config("odd_heads", num_key_value_heads=3)
    config("heads_times_size", num_attention_heads=1048576, num_key_value_heads=1, head_dim=1048576)
    config("float_size", hidden_size=64.0)
    config("scaling_number", rope_scaling=8)
    config("scaling_infinite", rope_scaling={**LLAMA3, "factor": 1e308 * 0.999})
    config("theta_disagrees", rope_parameters={"rope_theta": 5.0, "rope_type": "default"})
    config("mixed_layers", layer_types=["full_attention", "sliding_attention"])
    config("layer_types_objects", layer_types=[{}, {}])
    config("four_bits", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    config("quantised", quantization_config={"bits": 4})


# --- train_state.json ----------------------------------------------------------------------------------------------

def line(data_step, **more):
    """Of metrics.jsonl."""
    return {"step": data_step, "data_step": data_step, "loss": 2.5, "grad_norm": 1.0, "lr": 0.001, "tokens": 120 * data_step,
            "tokens_per_second": 100.0, "step_seconds": 0.25, "mfu": 0.5, "mfu_causal": 0.25, "memory_bytes": 1024, **more}


STATE = {
    "step": 20,
    "data_step": 20,
    "tokens": 2400,
    "skipped_in_a_row": 0,
    "loss_scale": 1.0,
    "good_steps": 20,
    "lane_sequences": 1,
    "data_tokens": 1140,
    "data_documents": 60,
    "ranks": 4,
    "config": {"run.seed": "7", "optimizer.betas": "[0.9, 0.95]"},
    "log_history": [line(20)],
}


def state(name, **changes):
    put("train_state", name, json.dumps({**STATE, **changes}, indent=1))


def make_train_state():
    state("plain")
    state("evaluated", eval_loss=2.5, best={"step": 10, "loss": 2.25})
    state("evaluated_infinite", eval_loss="inf")
    state("evaluated_text", eval_loss="low")
    state("best_infinite", best={"step": 10, "loss": "inf"})
    put("train_state", "nothing", "")
    put("train_state", "cut_off", json.dumps(STATE)[:100])
    put("train_state", "bad_utf8", b'{"step":"\xc0\x80"}')
    put("train_state", "array", "[20]")
    put("train_state", "duplicate", '{"step":1,"step":2}')
    put("train_state", "deep", '{"step":' + '{"a":' * 2000 + "1" + "}" * 2001)
    put("train_state", "member_missing", json.dumps({k: v for k, v in STATE.items() if k != "tokens"}))
    put("train_state", "infinite", json.dumps(STATE).replace("1.0,", "1e999,", 1))
    state("member_unknown", more=1)
    state("negative", step=-1)
    state("too_large", step=9223372036854775808)
    state("fraction", step=1.5)
    state("no_scale", loss_scale=0)
    state("step_past_data", step=21)
    state("best_number", best=3)
    state("best_incomplete", best={"step": 3, "less": 1})
    state("config_number", config={"run.seed": 7})
    state("config_text", config="run.seed = 7")
    state("too_many_steps", step=1, data_step=2**53)
    history = [line(16, eval_loss=2.75), line(18, loss="nan", skipped=True, step=17, loss_scale=65536.0), line(20, saved_step=16)]
    state("history", log_history=history)
    state("history_missing", log_history=[])
    state("history_number", log_history=3)
    state("history_of_numbers", log_history=[3])
    state("history_long", log_history=[0] * 1025)
    state("history_backwards", log_history=[line(18), line(16), line(20)])
    state("history_too_far", log_history=[line(20), line(21)])
    state("history_step", log_history=[line(20, step=21)])
    state("history_unknown", log_history=[line(20, more=1)])
    state("history_deep", log_history=[line(20, loss=[[1]])])


EVERYTHING = """{#- All kinds of constructs. -#}
{%- macro line(role, text='none') -%}<{{ role }}>{{ text | trim ~ caller() }}{%- endmacro -%}
{%- set ns = namespace(n=0, all=[]) -%}
{% for m in messages if m.role is defined and m.role != 'nobody' %}
  {%- set ns.n = ns.n + loop.index0 * 2 // 1 % 7 -%}
  {%- call(x='y') line(m.role, text=m.content[1:-1:1]) %}{{ x }}{{ m | tojson(indent=2) }}{% endcall -%}
  {%- set block | upper %}{{ m['content'].split(' ', 1) | map('replace', 'a', 'b') | join(', ') }}{% endset -%}
  {{- block if loop.first else (loop.previtem.content if loop.previtem else '') -}}
  {%- generation -%}{{ m.content.strip() + eos_token }}{%- endgeneration -%}
  {%- if not loop.last and ns.n > 100 %}{% break %}{% elif m.tool_calls %}{% continue %}{% else %} {{- '\\n\\u00e9' }}{% endif -%}
{% else %}nothing{% endfor %}
{%- filter title %}{{ strftime_now('%d %B') }} {{ {'a': [1, 2.5, none, true]} }} {{ range(3) | list | sort(reverse=true) }}{% endfilter -%}
{% for k, v in {'b': 1, 'a': (2,)}.items() | sort %}{{ k }}{{ v is mapping }}{{ missing | default('d') }}{% endfor %}
{% raw %}{{ raw }}{% endraw %}
"""


CHAT = """{%- if tools %}<s>{{ tools | tojson }}{% endif -%}
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content is defined and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{% if m.content is string %}{{ m.content | trim }}{% else %}{{ m.content | map(attribute='text') | join(' ') }}{% endif -%}
{% for call in m.tool_calls or [] %}{{ call.name }}({{ call.arguments | tojson }}){% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_chat_template():
    def template(name, text, record=None):
        put("chat_template", name, text if record is None else text + "\0" + json.dumps(record))
    template("everything", EVERYTHING)
    template("nothing", "")
    put("chat_template", "binary", b"\xff{{ 1 }}")
    template("endless", "{% for a in range(100000) %}{% for b in range(100000) %}{{ '' }}{% endfor %}{% endfor %}")
    template("doubling", "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}")
    template("doubling_list", "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}")
    template("shared_list", "{% set ns = namespace(s=[]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == ns.s }}")
    template("deep_list", "{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}")
    template("recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
    template("recursion_of_default", "{% macro m(a=m()) %}{% endmacro %}{{ m() }}")
    template("brackets", "{{ " + "[" * 999 + "]" * 999 + " }}")
    template("chain", "{{ 1" + " + 1" * 999 + " }}")
    template("nested", "{% if 1 %}" * 999)
    template("huge_repeat", "{{ 'x' * 9000000000000000000 }}")
    template("huge_indent", "{{ 'a\n' | indent(9000000000000000000) }}{{ [[]] | tojson(indent=9000000000000000000) }}")
    template("own_namespace", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}{{ ns.me.me == ns }}")
    template("escaping_macro", "{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}x{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}")
    template("unknown_statement", "{% include 'x' %}")
    template("overflow", "{{ 9223372036854775807 + 1 }}")
    template("negative_overflow", "{{ (-9223372036854775807 - 1) // -1 }}")
    tools = {"messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]}, {"role": "user", "content": "u", "n": [1, -2.5, None]},
        {"role": "assistant", "content": "\ue000", "thinking": "t", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
        {"role": "tool", "content": "r"}, {"role": "assistant", "content": ""}],
        "tools": [{"name": "f"}], "chat_template_kwargs": {"enable": True}}
    template("conversation", CHAT, tools)
    template("everything_of_tools", EVERYTHING, tools)
    template("prompt", CHAT, {"prompt": [{"role": "user", "content": "p"}], "completion": [{"role": "assistant", "content": "c"}]})
    template("hidden", "{% for m in messages %}<|{{ m.role }}|>{{ m.content | length }}{{ eos_token }}{% endfor %}",
             {"conversations": [{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}]})
    template("order", "{{ raise_exception('roles must alternate') if messages[0].role == messages[1].role }}",
             {"messages": [{"role": "user", "content": "a"}] * 2})
    template("no_messages", CHAT, {"messages": []})
    template("bad_record", CHAT, [])
    template("slices", "{{ 'abc'[-9223372036854775807:9223372036854775807:-9223372036854775807] }}{{ [1, 2][::9223372036854775807] }}")


# --- tokenizer -----------------------------------------------------------------------------------------------------


def tokenizer(name, text="ab <s>abc\u00e9\n1.", model=None, **members):
    vocab = {t: i for i, t in enumerate(["<unk>", "<s>", "a", "b", "c", "ab", "\u2581", "\u2581a", "\u0120", "<0xC3>", "<0xA9>"])}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b", ["\u2581", "a"]], "unk_token": "<unk>"} | (model or {})
    whole = {"added_tokens": [{"id": 1, "content": "<s>", "special": True, "normalized": False}], "model": model} | members
    put("tokenizer", name, json.dumps(whole).encode() + b"\0" + (text if isinstance(text, bytes) else text.encode()))


def split(pattern, behavior="Isolated", kind="Regex", **more):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, **more}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def make_tokenizer():
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    tokenizer("plain")
    tokenizer("bytes", pre_tokenizer=byte_level, decoder={"type": "ByteLevel"})
    tokenizer("fallback", model={"byte_fallback": True, "fuse_unk": True},
              normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace),
              decoder=sequence("decoders", replace | {"content": "_"}, {"type": "ByteFallback"}, {"type": "Fuse"},
                               {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    tokenizer("metaspace", pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
              decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"})
    tokenizer("steps", normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "NFD"}, {"type": "Lowercase"}, {"type": "Strip"}),
              pre_tokenizer=sequence("pretokenizers", split("b+", "MergedWithNext"), split("c", "Removed", "String", invert=True),
                                     {"type": "Whitespace"}, {"type": "Digits"}, {"type": "Punctuation"}))
    tokenizer("template", post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [1]}}}, added_tokens=[
            {"id": 1, "content": "<s>", "lstrip": True, "rstrip": True, "special": True},
            {"id": 5, "content": "ab", "single_word": True}])
    tokenizer("ignore_merges", model={"ignore_merges": True})
    tokenizer("invalid_text", text=b"\xff\xe2\x82a\xf0\x9f", pre_tokenizer=byte_level)
    put("tokenizer", "nothing", "")
    put("tokenizer", "bad_utf8", b'{"model":"\xc0\x80"}')
    put("tokenizer", "deep", '{"normalizer":' + '{"normalizers":[' * 100)
    put("tokenizer", "duplicate", '{"model":1,"model":2}')
    put("tokenizer", "no_model", "{}")
    tokenizer("other_model", model={"type": "WordPiece"})
    tokenizer("absurd_id", model={"vocab": {"a": 2**60}, "merges": [], "unk_token": None})
    tokenizer("unused_ids", model={"vocab": {"a": 100000}, "merges": [], "unk_token": None})
    tokenizer("negative_id", model={"vocab": {"a": -1}, "merges": [], "unk_token": None})
    tokenizer("same_id", model={"vocab": {"a": 1, "b": 1}, "merges": [], "unk_token": None})
    tokenizer("merge_of_one", model={"merges": ["a"]})
    tokenizer("merge_unknown", model={"merges": ["b a"]})
    tokenizer("bad_pattern", pre_tokenizer=split("(a"))
    tokenizer("endless_pattern", text="a" * 40 + "!", pre_tokenizer=split("(a+)+$"))
    tokenizer("growing", text="a" * 3000, normalizer=sequence("normalizers", *[
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}] * 8))
    tokenizer("many_steps", normalizer=sequence("normalizers", *[sequence("normalizers", *[{"type": "NFC"}] * 60)] * 60))
    tokenizer("unknown_member", normalizer={"type": "NFC", "more": 1})
    tokenizer("unknown_step", pre_tokenizer={"type": "UnicodeScripts"})
    tokenizer("behind_bytes", pre_tokenizer=sequence("pretokenizers", byte_level, {"type": "Digits"}))
    tokenizer("template_id", post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {"x": {"ids": [99]}}})
    tokenizer("added_id", added_tokens=[{"id": 3, "content": "<s>"}])
    tokenizer("added_empty", added_tokens=[{"id": 3, "content": ""}])


# --- dataset -------------------------------------------------------------------------------------------------------
# JSON lines, for a tokenizer of bytes and special tokens


def message(role, content):
    return {"role": role, "content": content}


def make_dataset():
    def lines(name, *records):
        put("dataset", name, "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))

    user, assistant = message("user", "ab"), message("assistant", "c")
    chat = {"messages": [user, assistant]}
    lines("texts", *({"text": t} for t in ["", "a", "<s> \u00e9\ud83d\ude00</s>", "0123456789" * 3]))
    lines("chats", chat, {"messages": [message("system", " s "), user, assistant, user, message("assistant", "<|im_end|>")]},
          {"conversations": [{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}], "tools": [{"name": "f"}]})
    lines("prompts", {"prompt": "ab", "completion": "c"}, {"prompt": [user], "completion": [assistant]},
          {"prompt": "<s>a", "completion": ""})
    lines("mixed", {"text": "t", "more": [1.5, None]}, chat, {"prompt": "p", "completion": "c"})
    for name, record in {"four_chats": chat, "four_systems": {"messages": [message("system", "s"), user, assistant, user, assistant]},
                         "four_prompts": {"prompt": [user], "completion": [assistant]}}.items():
        lines(name, *[record] * 4)
    lines("odd_roles", {"messages": [message("r<|im_end|>", "a")]}, {"messages": [assistant, assistant]},
          {"messages": [user | {"content": [{"type": "text", "text": "a"}], "thinking": "t"}, assistant]})
    put("dataset", "nothing", "")
    put("dataset", "no_newline", b'{"text":"a"}\r\n{"text":"b"}')
    lines("blank", {"text": "a"}, "")
    lines("not_json", chat, '{"messages": [')
    lines("not_an_object", chat, "[1]")
    put("dataset", "bad_utf8", b'{"text":"a\xff"}\n')
    put("dataset", "zero_byte", b'{"text":"a"}\0{"text":"b"}\n')
    lines("large_number", '{"text":"a","n":1e999}')
    lines("duplicate", '{"messages":[],"messages":[]}')
    lines("deep", '{"text":' + "[" * 2000 + "]" * 2000 + "}")
    lines("deep_chat", '{"messages":' + "[" * 2000 + "]" * 2000 + "}")
    lines("no_text", {"body": "a"})
    lines("text_number", {"text": 1})
    lines("no_messages", {"messages": []})
    lines("messages_text", {"messages": "a"})
    lines("message_text", {"messages": ["a"]})
    lines("no_role", {"messages": [{"content": "a"}]})
    lines("role_number", {"messages": [{"role": 1, "content": "a"}]})
    lines("no_content", {"messages": [{"role": "user"}]})
    lines("no_completion", {"prompt": "a"})
    lines("prompt_number", {"prompt": 1, "completion": "a"})
    lines("turn_without_value", {"conversations": [{"from": "human"}]})
    lines("arguments", chat | {"chat_template_kwargs": 1})
    lines("integer", chat | {"tools": 2**64 - 1})


# --- records that compare answers -----------------------------------------------------------------------------------


def make_answers():
    def lines(name, *records):
        put("answers", name, "".join(json.dumps(r) + "\n" for r in records))

    pair = {"prompt": "ab", "chosen": "c", "rejected": "d"}
    answer = {"prompt": "ab", "completion": "c"}
    ids = {"prompt_ids": [1, 2], "completion_ids": [3, 4]}
    user, assistant = message("user", "ab"), message("assistant", "c")
    lines("pairs", pair, {"chosen": "a \u00e9", "rejected": "a \u00e8"},
          {"prompt": [user], "chosen": [assistant], "rejected": [message("assistant", "d")]},
          {"chosen": [user, assistant], "rejected": [user, message("assistant", "")]})
    lines("labels", answer | {"label": True}, answer | {"completion": "d", "label": False})
    lines("chat_labels", {"prompt": [user], "completion": [assistant], "label": True})
    lines("rollouts", answer | {"advantage": 0.5}, answer | {"advantages": [1, -1]}, ids | {"advantage": -1},
          answer | {"reward": 1, "group": 7}, answer | {"reward": 0, "group": 7}, answer | {"reward": 3, "group": "h"})
    lines("logprobs", ids | {"advantages": [1, 2], "logprobs": [-0.5, -1e30]}, answer | {"advantage": 0, "logprobs": [-1, 0]})
    put("answers", "nothing", "")
    lines("no_difference", pair | {"rejected": "c"}, {"chosen": "ab", "rejected": "a"})
    lines("unlike_labels", answer | {"label": True}, {"prompt": [user], "completion": [assistant], "label": True})
    lines("label_number", answer | {"label": 1})
    lines("two_advantages", answer | {"advantage": 1, "reward": 1})
    lines("no_group", answer | {"reward": 1})
    lines("group_list", answer | {"reward": 1, "group": [1]})
    lines("group_returns", *({"reward": 1, "group": g} | answer for g in (1, 2, 1)))
    lines("few_advantages", ids | {"advantages": [1]})
    lines("some_logprobs", ids | {"advantage": 1, "logprobs": [-1, -1]}, ids | {"advantage": 1})
    lines("large_advantage", ids | {"advantage": 1e39})
    lines("large_token", ids | {"prompt_ids": [2**31]} | {"advantage": 1})
    lines("unknown_token", ids | {"prompt_ids": [2**31 - 1]} | {"advantage": 1})


def make_token_column():
    def column(name, count=3, identity=b"fuzz", length=None, values=3):
        header = b"FLATCOL1" + struct.pack("<QQ", count, len(identity) if length is None else length)
        put("token_column", name, padded(header + identity) + struct.pack(f"<{values}f", *range(values)))

    column("three")
    put("token_column", "nothing", "")
    put("token_column", "short", b"FLATCOL1")
    put("token_column", "other_magic", b"FLATCOL2" + bytes(40))
    column("cut_off", values=2)
    column("many_values", count=2**63)
    column("long_identity", length=2**64 - 8)
    column("other_identity", identity=b"made")
    column("other_count", count=2, values=2)


# --- token files ---------------------------------------------------------------------------------------------------


def padded(data):
    return data + bytes(-len(data) % 8)


def make_token_file():
    def tokens(name, values=(3, 1, 4, 1, 5, 9, 2, 6), starts=(0, 3, 3, 8), mask=None, manifest=b"", width=2, vocab=10, **header):
        bits = sum(bit << i for i, bit in enumerate(mask or ()))
        mask_bytes = padded(bits.to_bytes((len(mask) + 7) // 8, "little")) if mask else b""
        sizes = {"tokens": len(values), "documents": len(starts) - 1, "mask": len(mask_bytes), "text": len(manifest)} | header
        data = b"FLATTOK2" + struct.pack("<IIQQQQ", width, vocab, *sizes.values())
        data += padded(struct.pack(f"<{len(values)}{'H' if width == 2 else 'I'}", *values))
        return put("token_file", name, data + struct.pack(f"<{len(starts)}Q", *starts) + mask_bytes + manifest)

    made = {"tokenizer": "bytes", "inputs": [{"path": "/no/such/file", "weight": 1, "content": "x"}, {"path": "fuzz.jsonl"}, 3]}
    tokens("plain")
    tokens("masked", mask=[0, 1, 1, 0, 0, 1, 0, 1], manifest=json.dumps(made).encode())
    tokens("wide", width=4, vocab=100000, values=(99999, 0, 70000), starts=(0, 1, 3))
    tokens("no_tokens", values=(), starts=(0,))
    tokens("untrained", mask=[1, 0, 0] * 3, values=range(9), starts=(0, 3, 6, 9))
    tokens("stray_bits", mask=[1] * 64)
    put("token_file", "nothing", "")
    put("token_file", "cut_off", b"FLATTOK2")
    put("token_file", "other_version", b"FLATTOK4" + bytes(56))
    tokens("odd_width", width=3)
    tokens("no_vocab", vocab=0)
    tokens("huge_vocab", width=4, vocab=2**32 - 1, values=(2**32 - 2,) * 4, starts=(0, 4))
    tokens("outside", values=(3, 10), starts=(0, 2))
    tokens("many_tokens", tokens=2**63)
    tokens("many_documents", documents=2**64 - 1)
    tokens("other_mask", mask=[1] * 65)
    tokens("long_manifest", text=3)
    tokens("starts_late", starts=(1, 8))
    tokens("starts_fall", starts=(0, 5, 3, 8))
    tokens("starts_short", starts=(0, 3))
    rules = {"family": "idefics2", "token": 1, "filter": "bilinear", "shortest_edge": 14, "splits": False}
    with_images("images", [(0, 2), (4, 8)], rules)
    with_images("image_of_two_documents", [(2, 5)], rules)
    with_images("images_overlap", [(0, 2), (1, 3)], rules)
    with_images("image_outside", [(7, 9)], rules)
    with_images("no_images", [], rules)
    with_images("no_rules", [(0, 2)], None)
    with_images("odd_rules", [(0, 2)], rules | {"patch_size": 0})
    with_images("many_images", [(0, 2)], rules, count=2**60)
    with_images("long_name", [(0, 2)], rules, path_bytes=2**31)
    with_images("lost_images", [(0, 2)], rules, stored=100)


def with_images(name, extents, rules, count=None, path_bytes=5, stored=0):
    """A token file with images of one frame of one patch, whose second token is <image>."""
    values, starts = (3, 1, 4, 1, 5, 1, 2, 6), (0, 3, 3, 8)
    names = b"a.pngf.jsonl:1" * len(extents)
    table = b"".join(struct.pack("<QQIIIIIIIIQQQQ", begin, end, 1, 1, 1, 14, 14, path_bytes, 9, 0, 70, 7, 0, 14 * i)
                     for i, (begin, end) in enumerate(extents))
    manifest = json.dumps({"images": rules} if rules else {}).encode()
    data = b"FLATTOK3" + struct.pack("<IIQQQQ", 2, 10, len(values), len(starts) - 1, 0, len(manifest)) + struct.pack("<8H4Q", *values, *starts)
    data += table + names + struct.pack("<QQQ", len(extents) if count is None else count, len(names), stored)
    put("token_file", name, data + manifest)


# --- images --------------------------------------------------------------------------------------------------------


def image(name):
    return (HERE.parent.parent / "golden" / "images" / name).read_bytes()


def make_image():
    for name, golden in [("gray.jpeg", "gray.jpeg"), ("progressive.jpeg", "subsampling_2_progressive.jpeg"), ("turned.jpeg", "orientation_6.jpeg"),
                         ("palette.png", "palette_2.png"), ("interlaced.png", "rgba_16_interlaced.png"), ("lossy.webp", "rgba.webp"),
                         ("lossless.webp", "rgb_lossless.webp"), ("cmyk.jpeg", "cmyk.jpeg"), ("animated.png", "animated.png"), ("animated.webp", "animated.webp")]:
        put("image", name, image(golden))
    put("image", "nothing", "")
    put("image", "text", "<svg/>")
    put("image", "cut_off.jpeg", image("gray.jpeg")[:-40])
    put("image", "cut_off.png", image("rgb_8.png")[:-60])
    png = image("rgb_8.png")
    put("image", "huge.png", png[:16] + struct.pack(">II", 50000, 50000) + png[24:])
    put("image", "checksum.png", png[:29] + bytes(4) + png[33:])
    frame = b"\xff\xc0\0\x0b" + bytes((8, 0, 9, 0, 9, 1, 1, 17, 0))
    put("image", "sizeless.jpeg", b"\xff\xd8\xff\xd9")
    put("image", "twelve_bits.jpeg", b"\xff\xd8" + frame.replace(b"\x0b\x08", b"\x0b\x0c") + b"\xff\xd9")
    put("image", "no_segment.jpeg", b"\xff\xd8" + frame + b"\0\0")
    put("image", "short_segment.jpeg", b"\xff\xd8\xff\xe0\0\1")
    webp = image("rgba.webp")
    put("image", "other_size.webp", webp[:24] + bytes((99, 0, 0, 99, 0, 0)) + webp[30:])


make_safetensors()
make_index()
make_quantized()
make_config()
make_train_state()
make_chat_template()
make_tokenizer()
make_dataset()
make_answers()
make_token_column()
make_token_file()
make_image()
