// Cases of the embedding, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/embedding.h"

namespace flatshard::bench {
namespace {

struct Sizes {
  int64_t N, V, C;
  int64_t P = 0;          // 0: no positions
  bool distinct = false;  // no repeated tokens
};

void formula(Values& v, const Sizes& s) {
  v["y"].assign(s.N * s.C, 0);
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t i = 0; i < s.C; ++i) {
      double& y = v["y"][n * s.C + i];
      y = v["w"][static_cast<int64_t>(v["tokens"][n]) * s.C + i];
      if (s.P > 0) y += v["p"][static_cast<int64_t>(v["positions"][n]) * s.C + i];
    }
}

std::string name_of(const Sizes& s) {
  return str(s.N, " x ", s.C, " of ", s.V, s.P > 0 ? str(" + ", s.P) : "");
}

// Random tokens. About a quarter of them are the last token of the vocabulary, so one row receives many
// additions.
Arg tokens(const Sizes& s) {
  return {"tokens", DType::i32, {s.N}, Role::constant, [=](int64_t n, double unit) {
            if (s.distinct) return static_cast<double>(37 * n % s.V);
            return unit > 0.75 ? static_cast<double>(s.V - 1) : unit * static_cast<double>(s.V);
          }};
}

// Consecutive documents of P positions.
Arg positions(const Sizes& s) {
  return {"positions", DType::i32, {s.N}, Role::constant, [=](int64_t n, double) {
            return static_cast<double>(n % s.P);
          }};
}

EmbeddingForward forward_args(const Tensors& t) {
  if (!t.has("p")) return {.y = t["y"], .w = t["w"], .tokens = t["tokens"]};
  return {.y = t["y"], .w = t["w"], .tokens = t["tokens"], .p = t["p"], .positions = t["positions"]};
}

EmbeddingBackward backward_args(const Tensors& t) {
  if (!t.has("dp")) return {.dw = t["dw"], .dy = t["dy"], .tokens = t["tokens"]};
  return {.dw = t["dw"], .dy = t["dy"], .tokens = t["tokens"], .dp = t["dp"], .positions = t["positions"]};
}

Case forward_case(DType dtype, const Sizes& s) {
  Case c{.op = "embedding_forward",
         .shape = name_of(s),
         .dtype = dtype,
         .args = {{"w", dtype, {s.V, s.C}, Role::input}, tokens(s), {"y", dtype, {s.N, s.C}, Role::output}},
         .run = [](Stream& stream, Arena&, const Tensors& t) { embedding_forward(stream, forward_args(t)); },
         .min_bytes = [](const Tensors& t) { return min_bytes(forward_args(t)); },
         .flops = [](const Tensors& t) { return flops(forward_args(t)); },
         .reference = [=](Values& v) { formula(v, s); }};
  if (s.P > 0) {
    c.args.push_back({"p", dtype, {s.P, s.C}, Role::input});
    c.args.push_back(positions(s));
  }
  return c;
}

Case backward_case(DType dtype, const Sizes& s) {
  Case c{.op = "embedding_backward",
         .shape = name_of(s),
         .dtype = dtype,
         .args = {{"w", dtype, {s.V, s.C}, Role::input},
                  tokens(s),
                  {"dy", dtype, {s.N, s.C}, Role::input},
                  {"dw", DType::f32, {s.V, s.C}, Role::updated}},
         .run = [](Stream& stream, Arena& scratch,
                   const Tensors& t) { embedding_backward(stream, scratch, backward_args(t)); },
         .min_bytes = [](const Tensors& t) { return min_bytes(backward_args(t)); },
         .flops = [](const Tensors& t) { return flops(backward_args(t)); },
         .reference = [=](Values& v) { formula(v, s); },
         .gradients = true};
  if (s.P > 0) {
    c.args.push_back({"p", dtype, {s.P, s.C}, Role::input});
    c.args.push_back(positions(s));
    c.args.push_back({"dp", DType::f32, {s.P, s.C}, Role::updated});
  }
  return c;
}

std::vector<Sizes> sizes(Scale scale) {
  if (scale == Scale::bench)
    return {{16384, 50257, 768}, {16384, 50257, 768, 1024}, {8192, 32000, 2048}, {65536, 151936, 1536}};
  // min_bytes assumes distinct tokens.
  if (scale == Scale::vm)
    return {{64, 64, 2048, 0, true}, {64, 64, 1024, 64, true}, {65536, 65536, 8, 0, true}};
  if (scale == Scale::golden) return {{12, 7, 40, 5}};
  std::vector<Sizes> all{{0, 3, 7},      {0, 4, 16, 3}, {1, 1, 1},      {5, 3, 7},     {9, 4, 16, 3},
                         {70, 6, 5, 70}, {2, 2, 131},   {3, 2, 130, 2}, {2100, 600, 1}};
  for (const Sizes& s : {Sizes{1000, 2, 72}, {700, 50, 8}}) all.push_back(s);  // frequent tokens
  return all;
}

}  // namespace

std::vector<Case> embedding_cases(Scale scale) {
  return both_directions(scale, sizes(scale), forward_case, backward_case);
}

}  // namespace flatshard::bench
