#include "hub/gguf/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "hub/gguf/gguf_rope.h"
#include "hub/model_folder.h"
#include "model/model.h"
#include "model/names.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// A family that llama.cpp knows.
struct GgufFamily {
  const char* family;
  const char* architecture;
  bool interleaved = false;  // llama.cpp rotates neighboring elements
  bool windows = false;      // the architecture has sliding windows
  bool square = false;       // heads * head_dim must be hidden
  bool own_head = false;     // the file has output.weight even if the head is tied
  bool no_head = false;      // the file never has output.weight
  bool llama3 = false;       // the file may have the divisors of llama3 (gguf_rope.h)
  bool longrope = false;     // the file may have the divisors of longrope
  bool experts = false;      // a mixture of experts; an architecture may have files with and without
  // Whether the weights of a token's experts add up to 1; empty: the file says so.
  std::optional<bool> norm_topk = true;
  bool mlp_norm_is_post = false;  // the norm before the MLP has the name of one after attention
  bool optional_parts = false;    // biases of q, k and v, and norms of heads, are there or not
  bool whole_bounds = true;       // the bounds of YaRN's ramp are whole
  // Attention scores of models with this many layers are divided by the square root of hidden / heads.
  int64_t layers_by_hidden = 0;
};

constexpr GgufFamily kFamilies[] = {
    {.family = "llama", .architecture = "llama", .interleaved = true, .llama3 = true},
    {.family = "mistral", .architecture = "llama", .interleaved = true, .llama3 = true},
    {.family = "qwen2", .architecture = "qwen2", .square = true},
    {.family = "qwen3", .architecture = "qwen3"},
    {.family = "gpt2", .architecture = "gpt2", .square = true},
    {.family = "gemma2", .architecture = "gemma2", .windows = true, .no_head = true, .layers_by_hidden = 46},
    {.family = "gemma3", .architecture = "gemma3", .windows = true, .layers_by_hidden = 62},
    {.family = "granite", .architecture = "granite", .interleaved = true, .llama3 = true},
    {.family = "glm4", .architecture = "glm4"},
    {.family = "phi3", .architecture = "phi3", .square = true, .longrope = true},
    {.family = "olmo2", .architecture = "olmo2", .windows = true, .square = true, .own_head = true},
    {.family = "smollm3", .architecture = "smollm3", .interleaved = true},
    {.family = "mixtral", .architecture = "llama", .interleaved = true, .experts = true},
    {.family = "qwen3_moe", .architecture = "qwen3moe", .experts = true},
    {.family = "qwen2_moe", .architecture = "qwen2moe", .experts = true, .norm_topk = false},
    {.family = "olmoe", .architecture = "olmoe", .experts = true, .norm_topk = false},
    {.family = "granitemoe", .architecture = "granitemoe", .interleaved = true, .experts = true},
    {.family = "glm4_moe",
     .architecture = "glm4moe",
     .experts = true,
     .norm_topk = {},
     .mlp_norm_is_post = true,
     .optional_parts = true},
    {.family = "gpt_oss",
     .architecture = "gpt-oss",
     .windows = true,
     .experts = true,
     .mlp_norm_is_post = true,
     .whole_bounds = false},
};

const GgufFamily& gguf_family(const ModelConfig& c) {
  for (const GgufFamily& f : kFamilies)
    if (c.family == f.family) return f;
  check(
      !c.vision, "family ", c.family,
      " reads images: GGUF keeps what sees them in a file of its own, which is not written here; export the "
      "model as a folder, and convert that with llama.cpp's convert_hf_to_gguf.py, once as it is and once "
      "with --mmproj");
  fail(str("family ", c.family, " has no counterpart in llama.cpp: it cannot be written as GGUF"));
}

bool has_multipliers(const GgufFamily& f) { return std::string_view(f.architecture).starts_with("granite"); }

// The name of a layer in the file. Throws an Error for an unknown layer.
std::string gguf_layer(const GgufFamily& f, const ParamNames& n, const std::string& layer) {
  const char* const mlp_norm = f.mlp_norm_is_post ? "post_attention_norm" : "ffn_norm";
  const std::pair<const std::string&, const char*> rows[] = {{n.attention_norm, "attn_norm"},
                                                             {n.attention_out_norm, "post_attention_norm"},
                                                             {n.mlp_norm, mlp_norm},
                                                             {n.mlp_out_norm, "post_ffw_norm"},
                                                             {n.q, "attn_q"},
                                                             {n.k, "attn_k"},
                                                             {n.v, "attn_v"},
                                                             {n.qkv, "attn_qkv"},
                                                             {n.q_norm, "attn_q_norm"},
                                                             {n.k_norm, "attn_k_norm"},
                                                             {n.attention_out, "attn_output"},
                                                             {n.gate, "ffn_gate"},
                                                             {n.up, "ffn_up"},
                                                             {n.gate_up, "ffn_up"},
                                                             {n.down, "ffn_down"},
                                                             {n.router, "ffn_gate_inp"},
                                                             {n.expert_gate, "ffn_gate_exps"},
                                                             {n.expert_up, "ffn_up_exps"},
                                                             {n.expert_gate_up, "ffn_gate_exps"},
                                                             {n.expert_down, "ffn_down_exps"},
                                                             {n.shared_gate, "ffn_gate_shexp"},
                                                             {n.shared_up, "ffn_up_shexp"},
                                                             {n.shared_down, "ffn_down_shexp"},
                                                             {n.shared_switch, "ffn_gate_inp_shexp"}};
  for (const auto& [ours, theirs] : rows)
    if (!ours.empty() && layer == ours) return theirs;
  fail(str("layer ", layer, " has no counterpart in llama.cpp"));
}

// Replaces the index of an expert in the path of its layer by {e}, and returns the index; -1: there is none.
int64_t take_expert(std::string& layer) {
  static const std::string kExperts = ".experts.";
  const size_t at = layer.find(kExperts);
  if (at == std::string::npos) return -1;
  const size_t begin = at + kExperts.size(), size = layer.find('.', begin) - begin;
  const int64_t expert = std::stoll(layer.substr(begin, size));
  layer.replace(begin, size, "{e}");
  return expert;
}

// Where a parameter of the model is in a file.
struct GgufPlace {
  std::string name;   // name of the tensor
  std::string layer;  // the path within the block, with {e} for an expert; "": outside of the blocks
  int64_t expert = -1;
};

// The name in the file of a parameter of a block that is not one of a layer; null: it is.
const char* gguf_own_name(const ParamNames& n, const std::string& parameter) {
  const std::pair<const std::string&, const char*> rows[] = {{n.router_bias, "exp_probs_b.bias"},
                                                             {n.sinks, "attn_sinks.weight"},
                                                             {n.all_gate_up_bias, "ffn_gate_exps.bias"},
                                                             {n.all_down_bias, "ffn_down_exps.bias"}};
  for (const auto& [ours, theirs] : rows)
    if (!ours.empty() && parameter == ours) return theirs;
  return nullptr;
}

// "blk.3.ffn_up.weight" and "mlp.up_proj" for "model.layers.3.mlp.up_proj.weight".
GgufPlace place_of(const GgufFamily& f, const ParamNames& n, const std::string& parameter) {
  const size_t suffix = parameter.rfind('.');
  const std::string path = parameter.substr(0, suffix), kind = parameter.substr(suffix);
  const std::pair<const std::string&, const char*> outer[] = {{n.embedding, "token_embd"},
                                                              {n.positions, "position_embd"},
                                                              {n.final_norm, "output_norm"},
                                                              {n.head, "output"}};
  for (const auto& [ours, theirs] : outer)
    if (path == ours) return {.name = theirs + kind, .layer = {}};
  const size_t index = n.block.find("{i}"), end = path.find('.', index);
  const std::string block = str("blk.", path.substr(index, end - index), '.'),
                    in_block = parameter.substr(end + 1);
  if (const char* const name = gguf_own_name(n, in_block)) return {.name = block + name, .layer = in_block};
  GgufPlace place{.name = {}, .layer = path.substr(end + 1)};
  place.expert = take_expert(place.layer);
  place.name = block + gguf_layer(f, n, place.layer) + kind;
  return place;
}

// The matrix that a conversion reads.
struct Extents {
  int64_t rows, columns;
};

// Reads elements [first, first + count) of the tensor or of the parameter from `read`, which reads the other
// of the two: transposed, or with rows in another order, of which `row_of` gives the place.
void read_converted(const GgufParameter& p, const ReadMatrix& read, Extents from,
                    int64_t (GgufParameter::*row_of)(int64_t) const, int64_t first, int64_t count,
                    float* to) {
  if (p.transposed) return read_transposed(read, from.rows, from.columns, first, count, to);
  if (p.interleaved == 0) return read(first, count, to);
  const int64_t width = p.matrix() ? p.shape[1] : 1;
  for (const int64_t end = first + count; first < end;) {
    const int64_t row = first / width, column = first % width, n = std::min(end - first, width - column);
    read(std::invoke(row_of, p, row) * width + column, n, to);
    first += n;
    to += n;
  }
}

// Checks the settings that llama.cpp fixes.
void check_fixed(const GgufFamily& f, const ModelConfig& c) {
  const auto only = [&](bool holds, const char* key, auto value, const std::string& wanted) {
    check(holds, "model.", key, " is ", value, ", but llama.cpp's ", f.architecture, " models have ", wanted,
          ": this model cannot be written as GGUF");
  };
  const Family& defaults = family(c.family);
  only(f.optional_parts || *c.qkv_bias == defaults.qkv_bias || *c.qkv_bias == (c.family == "llama"),
       "qkv_bias", *c.qkv_bias, "the family's");
  only(f.optional_parts || *c.qk_norm == defaults.qk_norm, "qk_norm", *c.qk_norm, "the family's");
  only(!f.square || c.heads * c.head_dim == c.hidden, "head_dim", c.head_dim, "hidden / heads");
  only(!f.no_head || *c.tied, "tied", *c.tied, "a tied head");
  const int64_t scalar = c.layers == f.layers_by_hidden ? c.hidden / c.heads : c.head_dim;
  only(c.query_scalar == scalar, "query_scalar", c.query_scalar, std::to_string(scalar));
  if (f.experts) {
    only(!f.norm_topk || *c.norm_topk == *f.norm_topk, "norm_topk", *c.norm_topk ? "true" : "false",
         f.norm_topk.value_or(true) ? "weights that add up to 1" : "those of the softmax");
    only(c.qk_norm_width == QkNormWidth::head || c.kv_heads == c.heads, "kv_heads", c.kv_heads,
         str("as many as heads, ", c.heads));
    const bool leads = defaults.sigmoid_router &&
                       (c.dense_blocks.empty() || c.dense_blocks.back() == std::ssize(c.dense_blocks) - 1);
    only(leads || c.dense_blocks.empty(), "dense_blocks", in_brackets(c.dense_blocks),
         defaults.sigmoid_router ? "them first" : "experts in every block");
    only(c.expert_groups == 1, "expert_groups", c.expert_groups, "one group");
    only(c.shared_ffn % c.expert_ffn == 0 || !defaults.sigmoid_router, "shared_ffn", c.shared_ffn,
         str("a multiple of model.expert_ffn = ", c.expert_ffn));
    only(*c.swiglu_limit == defaults.swiglu_limit, "swiglu_limit", *c.swiglu_limit,
         str("a limit of ", defaults.swiglu_limit));
  }
  only((*c.attention_softcap > 0) == (defaults.attention_softcap > 0), "attention_softcap",
       *c.attention_softcap, defaults.attention_softcap > 0 ? "one" : "none");
  only((*c.logit_softcap > 0) == (defaults.logit_softcap > 0), "logit_softcap", *c.logit_softcap,
       defaults.logit_softcap > 0 ? "one" : "none");
  ModelConfig usual = c;
  usual.no_rope_every = defaults.no_rope_every;
  usual.no_rope_blocks.clear();
  for (int64_t block = 0; block < c.layers; ++block)
    only(c.rotates(block) == usual.rotates(block), "no_rope_blocks",
         str(c.rotates(block) ? "without block " : "with block ", block),
         str("every block number ", defaults.no_rope_every, " there"));
  const RopeScalingConfig& scaling = c.rope_scaling;
  const auto refuse = [&](RopeScaling::Kind kind, bool known) {
    only(known || scaling.kind != kind, "rope_scaling.kind", kind, "none, linear or yarn");
  };
  refuse(RopeScaling::Kind::llama3, f.llama3);
  refuse(RopeScaling::Kind::longrope, f.longrope);
  if (scaling.kind != RopeScaling::Kind::yarn) return;
  only(scaling.attention_factor == 0, "rope_scaling.attention_factor", scaling.attention_factor, "its own");
  only(scaling.mscale == 0 && scaling.mscale_all_dim == 0, "rope_scaling.mscale", scaling.mscale, "none");
  only(scaling.truncate == f.whole_bounds, "rope_scaling.truncate", scaling.truncate ? "true" : "false",
       f.whole_bounds ? "whole bounds" : "bounds that need not be whole");
}

void put_window(GgufWriter& out, const std::string& prefix, const ModelConfig& c) {
  out.put_size(prefix + "attention.sliding_window", *c.window);
  std::vector<bool> windowed;
  for (int64_t block = 0; block < c.layers; ++block) windowed.push_back(c.window_of(block) > 0);
  out.put(prefix + "attention.sliding_window_pattern", windowed);
  if (*c.window_rope_theta > 0) out.put(prefix + "rope.freq_base_swa", *c.window_rope_theta);
}

constexpr int64_t kGgufSigmoid = 2;  // llama.cpp's number for scores by sigmoid

void put_experts(GgufWriter& out, const std::string& prefix, const ModelConfig& c) {
  out.put_size(prefix + "expert_count", c.experts);
  out.put_size(prefix + "expert_used_count", c.experts_per_token);
  out.put_size(prefix + "expert_feed_forward_length", c.expert_ffn);
  if (!c.sigmoid_router) {
    if (c.shared_ffn > 0) out.put_size(prefix + "expert_shared_feed_forward_length", c.shared_ffn);
    return;
  }
  out.put_size(prefix + "leading_dense_block_count", std::ssize(c.dense_blocks));
  out.put_size(prefix + "expert_shared_count", c.shared_ffn / c.expert_ffn);
  out.put_size(prefix + "expert_gating_func", kGgufSigmoid);
  out.put(prefix + "expert_weights_scale", c.routed_scale);
  out.put(prefix + "expert_weights_norm", *c.norm_topk);
}

// ---- reading ----

void read_experts(const GgufFamily& f, const GgufKeys& keys, ModelConfig& c) {
  c.experts = keys.size("expert_count");
  c.experts_per_token = keys.size("expert_used_count");
  c.expert_ffn = keys.size("expert_feed_forward_length", c.ffn);
  if (f.norm_topk) c.norm_topk = f.norm_topk;
  if (!family(f.family).sigmoid_router) {
    if (family(f.family).shared_expert) c.shared_ffn = keys.size("expert_shared_feed_forward_length");
    return;
  }
  const int64_t function = keys.size("expert_gating_func", kGgufSigmoid);
  check(function == kGgufSigmoid, keys.name("expert_gating_func"), " is ", function, ", must be ",
        kGgufSigmoid, ", sigmoid");
  check(keys.size("expert_group_count", 1) <= 1, keys.name("expert_group_count"), " is ",
        keys.size("expert_group_count", 1), ", must be 1: other values are not supported");
  for (int64_t i = 0; i < keys.size("leading_dense_block_count", 0); ++i) c.dense_blocks.push_back(i);
  c.shared_ffn = keys.size("expert_shared_count") * c.expert_ffn;
  c.routed_scale = keys.real("expert_weights_scale", 1);
  c.norm_topk = keys.flag("expert_weights_norm", true);
}

const GgufFamily& family_of(const GgufFile& file) {
  const auto& architecture = file.value<std::string>("general.architecture");
  const bool experts = file.metadata().contains(architecture + ".expert_count");
  const std::string* type = file.find_value<std::string>("general.type");
  check(!type || *type == "model", file.path(), ": is a GGUF ", type ? printable(*type) : "",
        ", must be a model");
  std::string known;
  for (const GgufFamily& f : kFamilies) {
    if (architecture == f.architecture && experts == f.experts) return f;
    if (known.find(f.architecture) == std::string::npos)
      known += str(known.empty() ? "" : ", ", f.architecture);
  }
  fail(str(file.path(), ": general.architecture is \"", printable(architecture), "\", must be one of ",
           known));
}

// Reads the window and the blocks that have it, if the architecture has windows.
void read_window(const GgufFamily& f, const GgufKeys& keys, ModelConfig& c) {
  c.window = f.windows ? keys.size("attention.sliding_window", family(f.family).window) : 0;
  c.full_attention_every = 0;
  if (*c.window == 0) return;
  c.full_attention_every = family(f.family).full_attention_every;
  const std::vector<int64_t> windowed = keys.list("attention.sliding_window_pattern");
  if (windowed.empty()) return;
  check(std::ssize(windowed) == c.layers, keys.name("attention.sliding_window_pattern"), " has ",
        windowed.size(), " entries, must have one for each of ", c.layers, " blocks");
  const auto full = std::find(windowed.begin(), windowed.end(), 0);
  c.full_attention_every = full == windowed.end() ? 0 : full - windowed.begin() + 1;
  std::vector<int64_t> blocks;
  bool regular = true;
  for (int64_t block = 0; block < c.layers; ++block) {
    const bool has_window = windowed[static_cast<size_t>(block)] != 0;
    if (!has_window) blocks.push_back(block);
    regular = regular && (c.window_of(block) > 0) == has_window;
  }
  if (regular) return;
  c.full_attention_every.reset();
  c.full_attention_blocks = blocks;
}

void check_tensors(const GgufFile& file, const ModelConfig& c) {
  std::vector<std::string> wrong;
  std::set<std::string> expected;
  for (const GgufParameter& p : gguf_parameters(c)) {
    const GgufTensor* tensor = file.find(p.name);
    const std::vector<int64_t> shape = p.shape_of_tensor();
    if (!expected.insert(p.name).second) continue;
    if (!tensor)
      wrong.push_back(str(p.name, " is missing"));
    else if (tensor->shape != shape)
      wrong.push_back(str(p.name, " is ", in_brackets(tensor->shape), " instead of ", in_brackets(shape)));
  }
  for (const GgufTensor& tensor : file.tensors())
    if (!expected.contains(tensor.name) && !is_gguf_rope_tensor(tensor.name))
      wrong.push_back(str(printable(tensor.name), " is unexpected"));
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(wrong.size(), 6); ++i) text += str(i ? ", " : "", wrong[i]);
  check(wrong.empty(), file.path(), ": the tensors do not match a model of family ", c.family, ": ", text,
        wrong.size() > 6 ? ", ..." : "");
}

}  // namespace

int64_t GgufParameter::size() const {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::vector<int64_t> GgufParameter::shape_of_tensor() const {
  if (is_row) return {shape[1]};
  std::vector<int64_t> all = shape;
  if (experts > 0) all.insert(all.begin(), experts);
  return all;
}

std::vector<int64_t> GgufParameter::shape_in_model() const {
  std::vector<int64_t> model = transposed ? std::vector<int64_t>{shape[1], shape[0]} : shape;
  if (turn >= 0) model.back() *= 2;
  return model;
}

int64_t GgufParameter::row_in_model(int64_t row) const {
  if (interleaved == 0) return row;
  const int64_t in_head = row % interleaved;
  return row - in_head + in_head % 2 * (interleaved / 2) + in_head / 2;
}

int64_t GgufParameter::row_in_file(int64_t row) const {
  if (interleaved == 0) return row;
  const int64_t in_head = row % interleaved, half = interleaved / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

std::vector<GgufParameter> gguf_parameters(const ModelConfig& config) {
  const GgufFamily& f = gguf_family(config);
  const ParamNames& n = param_names(config.family);
  ModelConfig plain = config;
  plain.adapters.clear();
  plain.quantized.clear();
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  const Model model(plain, tables);
  std::vector<GgufParameter> parameters;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs()) {
      const auto [name, layer, expert] = place_of(f, n, spec.name);
      GgufParameter p{.parameter = spec.name, .name = name, .shape = {}};
      if (expert >= 0) p.experts = config.experts, p.expert = expert;
      p.is_row = layer == n.shared_switch && !layer.empty();
      for (int i = 0; i < spec.shape.rank(); ++i) p.shape.push_back(spec.shape[i]);
      p.transposed = p.matrix() && !layer.empty() &&
                     (n.transposed_weights || (n.interleaved_experts() && p.experts > 0));
      const bool in_turn =
          n.interleaved_experts() && (layer == n.expert_gate_up || layer == n.all_gate_up_bias);
      if (in_turn) p.shape.back() /= 2;
      if (p.transposed) std::swap(p.shape[0], p.shape[1]);
      if (f.interleaved && !layer.empty() && (layer == n.q || layer == n.k)) p.interleaved = config.head_dim;
      if (p.name.ends_with("norm.weight")) p.added = config.norm_offset;
      parameters.push_back(p);
      if (!in_turn) continue;
      parameters.back().turn = 0;
      p.turn = 1;
      p.name.replace(p.name.find("ffn_gate"), std::string_view("ffn_gate").size(), "ffn_up");
      parameters.push_back(std::move(p));
    }
  if (f.own_head && *config.tied) {
    GgufParameter head = parameters.front();
    head.name = "output.weight";
    parameters.push_back(head);
  }
  return parameters;
}

void read_as_gguf(const GgufParameter& p, const ReadValues& parameter, int64_t first, int64_t count,
                  float* to) {
  std::vector<float> pairs;
  const ReadMatrix read = [&](int64_t at, int64_t n, float* values) {
    if (p.turn < 0) return parameter(p.parameter, at, n, values);
    pairs.resize(static_cast<size_t>(2 * n));
    parameter(p.parameter, 2 * at, 2 * n, pairs.data());
    for (int64_t i = 0; i < n; ++i) values[i] = pairs[static_cast<size_t>(2 * i + p.turn)];
  };
  read_converted(p, read, {.rows = p.shape.back(), .columns = p.shape.front()}, &GgufParameter::row_in_model,
                 first, count, to);
  for (int64_t i = 0; p.added != 0 && i < count; ++i) to[i] += p.added;
}

namespace {

void read_one(const GgufParameter& p, const GgufFile& file, int64_t first, int64_t count, float* to) {
  const GgufTensor& tensor = *file.find(p.name);
  const int64_t begin = p.expert * p.size();
  const ReadMatrix read = [&](int64_t at, int64_t n, float* values) {
    file.read(tensor, begin + at, n, values);
  };
  read_converted(p, read, {.rows = p.shape.front(), .columns = p.shape.back()}, &GgufParameter::row_in_file,
                 first, count, to);
  for (int64_t i = 0; p.added != 0 && i < count; ++i) to[i] -= p.added;
}

}  // namespace

void read_from_gguf(std::span<const GgufParameter> tensors, const GgufFile& file, int64_t first,
                    int64_t count, float* to) {
  if (tensors.size() == 1) return read_one(tensors.front(), file, first, count, to);
  const int64_t begin = first / 2, end = (first + count + 1) / 2;
  std::vector<float> values(static_cast<size_t>(end - begin));
  for (const GgufParameter& p : tensors) {
    read_one(p, file, begin, end - begin, values.data());
    for (int64_t i = begin; i < end; ++i)
      if (const int64_t at = 2 * i + p.turn - first; at >= 0 && at < count)
        to[at] = values[static_cast<size_t>(i - begin)];
  }
}

std::string gguf_architecture(const ModelConfig& config) {
  const GgufFamily& f = gguf_family(config);
  check_fixed(f, config);
  return f.architecture;
}

std::vector<std::string> put_gguf_config(GgufWriter& out, const ModelConfig& c) {
  const GgufFamily& f = gguf_family(c);
  const std::string prefix = str(f.architecture, '.');
  std::vector<std::string> notes;
  int64_t context = c.max_positions;
  if (!f.windows && *c.window > 0 && *c.window < context) {
    notes.push_back(str("llama.cpp has no sliding window for ", f.architecture, " models: the context is ",
                        *c.window, " tokens, the window, instead of ", context));
    context = *c.window;
  }
  out.put_size(prefix + "vocab_size", c.vocab);
  out.put_size(prefix + "context_length", context);
  out.put_size(prefix + "embedding_length", c.hidden);
  out.put_size(prefix + "block_count", c.layers);
  out.put_size(prefix + "feed_forward_length", c.ffn);
  if (f.experts) put_experts(out, prefix, c);
  out.put_size(prefix + "attention.head_count", c.heads);
  out.put_size(prefix + "attention.head_count_kv", c.kv_heads);
  const bool rms = c.norm == NormKind::rms;
  out.put(prefix + (rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"), *c.norm_eps);
  out.put_size(prefix + "attention.key_length", c.head_dim);
  out.put_size(prefix + "attention.value_length", c.head_dim);
  if (f.windows && *c.window > 0) put_window(out, prefix, c);
  if (*c.attention_softcap > 0) out.put(prefix + "attn_logit_softcapping", *c.attention_softcap);
  if (*c.logit_softcap > 0) out.put(prefix + "final_logit_softcapping", *c.logit_softcap);
  if (has_multipliers(f)) {
    out.put(prefix + "embedding_scale", c.embedding_multiplier);
    out.put(prefix + "residual_scale", c.residual_multiplier);
    out.put(prefix + "attention.scale", static_cast<double>(c.attention_scale()));
    out.put(prefix + "logit_scale", c.logit_divisor);
  }
  for (std::string& note : put_gguf_rope(out, prefix, c)) notes.push_back(std::move(note));
  if (!f.whole_bounds && c.rope_scaling.kind == RopeScaling::Kind::yarn)
    notes.push_back("llama.cpp rounds the bounds of YaRN's ramp, which this model does not");
  return notes;
}

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufFamily& f = family_of(file);
  const GgufKeys keys(file, str(f.architecture, '.'));
  const Family& defaults = family(f.family);
  const GgufTensor* embedding = file.find("token_embd.weight");
  check(embedding && embedding->shape.size() == 2, file.path(),
        ": token_embd.weight is missing or no matrix");
  ModelConfig c{.family = f.family,
                .layers = keys.size("block_count"),
                .hidden = keys.size("embedding_length"),
                .heads = keys.size("attention.head_count"),
                .ffn = keys.size("feed_forward_length"),
                .vocab = embedding->shape[0],
                .max_positions = keys.size("context_length")};
  c.kv_heads = keys.size("attention.head_count_kv", c.heads);
  c.head_dim = keys.size("attention.key_length", c.heads > 0 ? c.hidden / c.heads : 0);
  const int64_t value_size = keys.size("attention.value_length", c.head_dim);
  check(value_size == c.head_dim, keys.name("attention.value_length"), " is ", value_size,
        ", must be that of keys, ", c.head_dim);
  c.tied = f.no_head || !file.find("output.weight");
  if (c.layers == f.layers_by_hidden && c.heads > 0) c.query_scalar = c.hidden / c.heads;
  const bool rms = defaults.norm == NormKind::rms;
  c.norm_eps =
      keys.real(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", defaults.norm_eps);
  if (defaults.attention_softcap > 0)
    c.attention_softcap = keys.real("attn_logit_softcapping", defaults.attention_softcap);
  if (defaults.logit_softcap > 0)
    c.logit_softcap = keys.real("final_logit_softcapping", defaults.logit_softcap);
  c.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr || file.find("blk.0.attn_qkv.bias") != nullptr;
  if (f.optional_parts) c.qk_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  c.rope_theta = keys.real("rope.freq_base", 10000);
  if (defaults.positions == PositionKind::rotary) {
    const int64_t rotated = keys.size("rope.dimension_count", c.head_dim);
    if (rotated < c.head_dim)
      c.partial_rotary_factor = static_cast<double>(rotated) / static_cast<double>(c.head_dim);
  }
  if (f.experts) read_experts(f, keys, c);
  if (has_multipliers(f)) {
    c.embedding_multiplier = keys.real("embedding_scale", 1);
    c.residual_multiplier = keys.real("residual_scale", 1);
    c.attention_multiplier = keys.real("attention.scale", 0);
    c.logit_divisor = keys.real("logit_scale", 1);
  }
  read_window(f, keys, c);
  if (defaults.window_rope_theta > 0)
    c.window_rope_theta = keys.real("rope.freq_base_swa", defaults.window_rope_theta);
  c = resolved(c);
  check_tensors(file, c);
  if (c.positions == PositionKind::rotary) c.rope_scaling = read_gguf_scaling(file, keys, c);
  if (c.rope_scaling.kind == RopeScaling::Kind::yarn) c.rope_scaling.truncate = f.whole_bounds;
  return resolved(c);
}

}  // namespace flatshard
