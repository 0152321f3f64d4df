// Cases of attention, shared by tests and benchmark.

#include <cmath>
#include <limits>

#include "bench/kernels/attention_setting.h"
#include "kernels/attention.h"

namespace flatshard::bench {
namespace {

int64_t total(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return sum;
}

// --- reference: all scores of all documents, in double

struct Head {  // one head of a (rows, heads, D) tensor
  std::vector<double>& values;
  int64_t heads, head, D;
  double& at(int64_t row, int64_t d) const {
    return values[static_cast<size_t>((row * heads + head) * D + d)];
  }
};

void attend(const AttentionSetting& s, const Head& o, double* lse, const Head& q, const Head& k,
            const Head& v) {
  int64_t first_query = 0, first_key = 0;
  for (size_t document = 0; document < s.queries.size(); ++document) {
    const int64_t queries = s.queries[document], keys = s.key_lengths()[document];
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t position = i + keys - queries;
      std::vector<double> weight(static_cast<size_t>(keys));
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        if (s.causal && (j > position || (s.window > 0 && j <= position - s.window))) continue;
        double score = 0;
        for (int64_t d = 0; d < s.D; ++d) score += q.at(first_query + i, d) * k.at(first_key + j, d);
        score *= s.scale();
        if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
        sum += weight[static_cast<size_t>(j)] = std::exp(score);
      }
      for (int64_t d = 0; d < s.D; ++d) {
        double value = 0;
        for (int64_t j = 0; j < keys; ++j) value += weight[static_cast<size_t>(j)] * v.at(first_key + j, d);
        o.at(first_query + i, d) = sum == 0 ? 0 : value / sum;
      }
      lse[first_query + i] = std::log(sum);
    }
    first_query += queries;
    first_key += keys;
  }
}

void formula(Values& values, const AttentionSetting& s) {
  const int64_t T = total(s.queries), heads = s.Hq + 2 * s.Hkv;
  std::vector<double>&o = values["o"], &lse = values["lse"];
  o.resize(static_cast<size_t>(T * s.Hq * s.D));
  lse.resize(static_cast<size_t>(s.Hq * T));
  for (int64_t h = 0; h < s.Hq; ++h) {
    const int64_t key_head = h / (s.Hq / s.Hkv);
    double* row_lse = lse.data() + h * T;
    if (s.packed) {
      std::vector<double>& qkv = values["qkv"];
      attend(s, {o, s.Hq, h, s.D}, row_lse, {qkv, heads, h, s.D}, {qkv, heads, s.Hq + key_head, s.D},
             {qkv, heads, s.Hq + s.Hkv + key_head, s.D});
    } else {
      attend(s, {o, s.Hq, h, s.D}, row_lse, {values["q"], s.Hq, h, s.D}, {values["k"], s.Hkv, key_head, s.D},
             {values["v"], s.Hkv, key_head, s.D});
    }
  }
}

// --- calls

struct Operands {
  Heads q, k, v;
};

// Returns the tensors with this prefix: "" or "d".
Operands operands(const Tensors& t, const AttentionSetting& s, const std::string& prefix) {
  if (!s.packed) return {t[prefix + "q"], t[prefix + "k"], t[prefix + "v"]};
  const Tensor qkv = t[prefix + "qkv"];
  return {{qkv, 0, s.Hq}, {qkv, s.Hq, s.Hkv}, {qkv, s.Hq + s.Hkv, s.Hkv}};
}

AttentionMask mask(const Tensors& t, const AttentionSetting& s) {
  return {.cu_seqlens = t["cu_seqlens"],
          .cu_seqlens_kv = s.own_keys() ? t["cu_seqlens_kv"] : Tensor{},
          .causal = s.causal,
          .window = s.window};
}

AttentionForward forward_args(const Tensors& t, const AttentionSetting& s, const Tensor& o) {
  const Operands x = operands(t, s, "");
  return {.o = o,
          .lse = t["lse"],
          .q = x.q,
          .k = x.k,
          .v = x.v,
          .mask = mask(t, s),
          .scale = s.scale(),
          .softcap = static_cast<float>(s.softcap)};
}

AttentionBackward backward_args(const Tensors& t, const AttentionSetting& s) {
  const Operands x = operands(t, s, ""), dx = operands(t, s, "d");
  return {.dq = dx.q,
          .dk = dx.k,
          .dv = dx.v,
          .grad_o = t["do"],
          .q = x.q,
          .k = x.k,
          .v = x.v,
          .o = t["o"],
          .lse = t["lse"],
          .mask = mask(t, s),
          .scale = s.scale(),
          .softcap = static_cast<float>(s.softcap)};
}

// Selects the tier of a setting for a scope.
class TierOf {
 public:
  explicit TierOf(const AttentionSetting& s) {
    if (s.one_pass) use_attention_tier(AttentionTier::one_pass);
  }
  ~TierOf() { use_attention_tier(before_); }
  TierOf(const TierOf&) = delete;
  TierOf& operator=(const TierOf&) = delete;

 private:
  AttentionTier before_ = attention_tier();
};

// --- cases

// Returns "7+3*1024" for a document of 7 rows and three of 1024.
std::string name_of(const std::vector<int64_t>& lengths) {
  std::string text;
  for (size_t i = 0, same = 1; i < lengths.size(); i += same, same = 1) {
    while (i + same < lengths.size() && lengths[i + same] == lengths[i]) ++same;
    text += str(text.empty() ? "" : "+", same > 1 ? str(same, "*") : "", lengths[i]);
  }
  return text;
}

std::string name_of(const AttentionSetting& s) {
  std::string text = name_of(s.queries) + (s.own_keys() ? " of " + name_of(s.keys) : "");
  text += str(" x ", s.Hq, "/", s.Hkv, " x ", s.D, s.causal ? " causal" : " full");
  if (s.window > 0) text += str(" window ", s.window);
  if (s.softcap > 0) text += str(" capped ", s.softcap);
  return text + (s.packed ? " packed" : "") + (s.one_pass ? " in one pass" : "");
}

Arg boundaries(const std::string& name, const std::vector<int64_t>& lengths) {
  return {name,
          DType::i32,
          {static_cast<int64_t>(lengths.size()) + 1},
          Role::constant,
          [lengths](int64_t i, double) {
            return static_cast<double>(total({lengths.begin(), lengths.begin() + i}));
          }};
}

// Adds q, k and v, or their gradients.
void add_operands(std::vector<Arg>& args, const std::string& prefix, DType dtype, const AttentionSetting& s,
                  Role role) {
  const int64_t T = total(s.queries), Tkv = total(s.key_lengths());
  if (s.packed) return args.push_back({prefix + "qkv", dtype, {T, s.Hq + 2 * s.Hkv, s.D}, role});
  args.push_back({prefix + "q", dtype, {T, s.Hq, s.D}, role});
  args.push_back({prefix + "k", dtype, {Tkv, s.Hkv, s.D}, role});
  args.push_back({prefix + "v", dtype, {Tkv, s.Hkv, s.D}, role});
}

std::vector<Arg> common_args(DType dtype, const AttentionSetting& s, Role result) {
  const int64_t T = total(s.queries);
  std::vector<Arg> args;
  add_operands(args, "", dtype, s, Role::input);
  args.push_back(boundaries("cu_seqlens", s.queries));
  if (s.own_keys()) args.push_back(boundaries("cu_seqlens_kv", s.keys));
  args.push_back({"o", dtype, {T, s.Hq, s.D}, result});
  args.push_back({"lse", DType::f32, {s.Hq, T}, result});
  return args;
}

}  // namespace

Case forward_case(DType dtype, const AttentionSetting& s) {
  return {.op = "attention_forward",
          .shape = name_of(s),
          .dtype = dtype,
          .args = common_args(dtype, s, Role::output),
          .run = [=](Stream& stream, Arena& scratch,
                     const Tensors& t) { attention_forward(stream, scratch, forward_args(t, s, t["o"])); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, s, t["o"])); },
          .flops = [=](const Tensors& t) { return flops(forward_args(t, s, t["o"])); },
          .reference = [=](Values& v) { formula(v, s); },
          // On a GPU, tanh errs by up to 2^-11 of a score of 16-bit operands.
          .tolerance_factor = s.softcap > 0 && dtype != DType::f32 ? 2.0 : 1.0,
          .matrix_bound = true};
}

Case backward_case(DType dtype, const AttentionSetting& s) {
  std::vector<Arg> args = common_args(dtype, s, Role::saved);
  args.push_back({"do", dtype, {total(s.queries), s.Hq, s.D}, Role::input});
  add_operands(args, "d", dtype, s, Role::output);
  return {
      .op = "attention_backward",
      .shape = name_of(s),
      .dtype = dtype,
      .args = args,
      .run =
          [=](Stream& stream, Arena& scratch, const Tensors& t) {
            const TierOf tier(s);
            attention_backward(stream, scratch, backward_args(t, s));
          },
      .prepare = [=](Stream& stream, Arena& scratch,
                     const Tensors& t) { attention_forward(stream, scratch, forward_args(t, s, t["o"])); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, s)); },
      .flops = [=](const Tensors& t) { return flops(backward_args(t, s)); },
      .reference = [=](Values& v) { formula(v, s); },
      .gradients = true,
      // dq and dk contain differences do v - do o, which amplify the rounding error of o.
      .tolerance_factor = dtype == DType::f32 ? 1.0 : 4.0,
      .matrix_bound = true};
}

namespace {

// The settings cover documents of one row, empty ones, ones longer than a block, boundaries at block edges;
// grouped heads; head sizes that are odd, one vector and more; windows of one row and larger than the
// document; fully masked rows.
const std::vector<AttentionSetting>& test_settings() {
  static const std::vector<AttentionSetting> all{
      {.queries = {1}, .Hq = 1, .Hkv = 1, .D = 1},
      {.queries = {5}, .Hq = 4, .Hkv = 2, .D = 2},
      {.queries = {3, 1, 4}, .Hq = 3, .Hkv = 1, .D = 6, .window = 2},
      {.queries = {7}, .Hq = 1, .Hkv = 1, .D = 10, .causal = false},
      {.queries = {2, 0, 5}, .Hq = 2, .Hkv = 2, .D = 3, .window = 1},
      {.queries = {6, 3}, .Hq = 2, .Hkv = 1, .D = 4, .window = 100, .packed = true},
      {.queries = {2, 4, 1}, .Hq = 2, .Hkv = 1, .D = 2, .keys = {5, 3, 1}},
      {.queries = {3, 2}, .Hq = 1, .Hkv = 1, .D = 2, .causal = false, .keys = {1, 4}},
      {.queries = {2}, .Hq = 2, .Hkv = 1, .D = 2, .window = 20, .keys = {141}},
      {.queries = {131}, .Hq = 1, .Hkv = 1, .D = 2, .causal = false, .keys = {2}},
      {.queries = {1}, .Hq = 1, .Hkv = 1, .D = 2, .keys = {131}},
      {.queries = {67}, .Hq = 1, .Hkv = 1, .D = 2},
      {.queries = {64, 3}, .Hq = 1, .Hkv = 1, .D = 2, .window = 9},
      {.queries = {4, 5}, .Hq = 2, .Hkv = 1, .D = 4, .window = 3, .softcap = 0.75},
      {.queries = {2}, .Hq = 2, .Hkv = 1, .D = 2, .window = 20, .keys = {141}, .softcap = 50},
      {.queries = {0}, .Hq = 2, .Hkv = 1, .D = 4},
      {.queries = {0, 0}, .Hq = 2, .Hkv = 1, .D = 8, .causal = false, .keys = {2, 1}},
      {.queries = {2, 1}, .Hq = 2, .Hkv = 1, .D = 8, .causal = false, .keys = {0, 0}},
      {.queries = {4, 0, 3}, .Hq = 2, .Hkv = 2, .D = 72, .causal = false, .packed = true},
  };
  return all;
}

// In models that see, patches attend to all patches of an image or of a window of it, and latents attend to
// patches. There may be no patches, or no latents.
const std::vector<AttentionSetting>& vision_settings() {
  static const std::vector<AttentionSetting> all{
      {.queries = {4, 0, 3}, .Hq = 2, .Hkv = 2, .D = 72, .causal = false},
      {.queries = {5, 2}, .Hq = 1, .Hkv = 1, .D = 80, .causal = false},
      {.queries = {2, 1, 2, 0}, .Hq = 2, .Hkv = 1, .D = 96, .causal = false, .keys = {5, 0, 3, 2}},
  };
  return all;
}

// Settings that are too large for numeric derivatives.
const std::vector<AttentionSetting>& forward_settings() {
  static const std::vector<AttentionSetting> all{
      {.queries = {270, 64}, .Hq = 2, .Hkv = 1, .D = 64, .packed = true},
      {.queries = {30, 131}, .Hq = 1, .Hkv = 1, .D = 96, .window = 70},
      // The window or causality masks a single pair in a tile.
      {.queries = {192}, .Hq = 1, .Hkv = 1, .D = 8, .window = 191},
      {.queries = {66}, .Hq = 1, .Hkv = 1, .D = 8, .keys = {128}},
      {.queries = {1, 17}, .Hq = 2, .Hkv = 2, .D = 256, .keys = {130, 64}},
  };
  return all;
}

struct TypedSetting {
  DType dtype;
  AttentionSetting setting;
};

// The settings cover all tile sizes of the CUDA kernel, with lengths that are not multiples of tiles; no
// masked keys.
const std::vector<TypedSetting>& vm_settings() {
  static const std::vector<TypedSetting> all{
      {DType::bf16, {.queries = {130}, .Hq = 2, .Hkv = 1, .D = 64, .packed = true}},
      {DType::f16, {.queries = {3, 67}, .Hq = 2, .Hkv = 1, .D = 64, .keys = {130, 70}}},
      {DType::f16, {.queries = {97, 1}, .Hq = 2, .Hkv = 2, .D = 80, .causal = false}},
      {DType::bf16, {.queries = {70, 0, 45}, .Hq = 2, .Hkv = 2, .D = 72, .causal = false, .packed = true}},
      {DType::bf16, {.queries = {64, 16}, .Hq = 4, .Hkv = 1, .D = 96, .causal = false, .keys = {164, 7}}},
      {DType::bf16, {.queries = {150}, .Hq = 2, .Hkv = 1, .D = 96, .window = 37}},
      {DType::bf16, {.queries = {70}, .Hq = 2, .Hkv = 1, .D = 64, .window = 37, .softcap = 1}},
      {DType::bf16, {.queries = {70, 58}, .Hq = 1, .Hkv = 1, .D = 128}},
      {DType::bf16, {.queries = {70}, .Hq = 2, .Hkv = 1, .D = 256}},
      {DType::f32, {.queries = {70}, .Hq = 2, .Hkv = 1, .D = 64, .packed = true}},
      {DType::f32, {.queries = {40, 33}, .Hq = 1, .Hkv = 1, .D = 128, .window = 20}},
      {DType::f32, {.queries = {16, 33}, .Hq = 4, .Hkv = 1, .D = 72, .causal = false, .keys = {40, 5}}},
      {DType::f32, {.queries = {35}, .Hq = 1, .Hkv = 1, .D = 256, .causal = false}},
      {DType::f32, {.queries = {40}, .Hq = 2, .Hkv = 1, .D = 64, .softcap = 1}},
  };
  return all;
}

const std::vector<AttentionSetting>& bench_settings() {
  static const std::vector<AttentionSetting> all{
      {.queries = {1024, 1024, 1024, 1024}, .Hq = 12, .Hkv = 12, .D = 64},
      {.queries = {2048, 2048}, .Hq = 8, .Hkv = 2, .D = 128},
  };
  return all;
}

// The shapes of published benchmarks: 16384 tokens in sequences of 1024 to 16384, hidden size 2048. Then the
// grouped heads of Qwen2.5-0.5B, Qwen2.5-1.5B and Llama-3-8B: few key heads make few blocks of keys, which
// are long.
std::vector<AttentionSetting> gpu_settings() {
  constexpr int64_t kTokens = 16384, kWidth = 2048;
  const auto documents = [](int64_t tokens, int64_t length) {
    return std::vector<int64_t>(static_cast<size_t>(tokens / length), length);
  };
  std::vector<AttentionSetting> all;
  for (const int64_t D : {64, 128})
    for (int64_t T = 1024; T <= kTokens; T *= 2)
      all.push_back({.queries = documents(kTokens, T), .Hq = kWidth / D, .Hkv = kWidth / D, .D = D});
  all.push_back({.queries = {kTokens}, .Hq = 16, .Hkv = 16, .D = 128, .causal = false});
  all.push_back({.queries = {8192}, .Hq = 64, .Hkv = 8, .D = 128});
  for (const int64_t T : {1024, 4096, 8192}) {
    all.push_back({.queries = documents(kTokens, T), .Hq = 14, .Hkv = 2, .D = 64});
    all.push_back({.queries = documents(kTokens, T), .Hq = 12, .Hkv = 2, .D = 128});
  }
  all.push_back({.queries = documents(8192, 4096), .Hq = 32, .Hkv = 8, .D = 128});
  return all;
}

}  // namespace

std::vector<Case> attention_cases(Scale scale) {
  std::vector<Case> cases;
  const auto add = [&](DType dtype, const std::vector<AttentionSetting>& settings) {
    for (const AttentionSetting& s : settings) {
      cases.push_back(forward_case(dtype, s));
      cases.push_back(backward_case(dtype, s));
    }
  };
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const double softcap : {0.0, 0.5})
        add(dtype, {{.queries = {9, 4}, .Hq = 4, .Hkv = 2, .D = 8, .window = 5, .softcap = softcap}});
      add(dtype, vision_settings());
    }
  } else if (scale == Scale::vm) {
    for (const auto& [dtype, setting] : vm_settings()) add(dtype, {setting});
  } else if (scale == Scale::bench) {
    for (const DType dtype : {DType::f32, DType::bf16}) add(dtype, bench_settings());
    const size_t small = cases.size();
    add(DType::bf16, gpu_settings());
    for (AttentionSetting s : gpu_settings()) {
      s.one_pass = true;
      if (s.causal) cases.push_back(backward_case(DType::bf16, s));
    }
    for (size_t i = small; i < cases.size(); ++i) cases[i].needs_gpu = true;
  } else {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      add(dtype, test_settings());
      add(dtype, vision_settings());
      for (const AttentionSetting& s : forward_settings()) cases.push_back(forward_case(dtype, s));
    }
  }
  return cases;
}

}  // namespace flatshard::bench
