// Cases of the cross-entropy, shared by tests and benchmark. The target weight is the gradient of the
// unweighted loss nll, so its argument is named dnll.

#include <cmath>

#include "bench/case.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace flatshard::bench {
namespace {

struct Sizes {
  int64_t N, V;
  int64_t valid_vocab = 0;
  double softcap = 0;
};

void formula(Values& v, const Sizes& s) {
  const int64_t V = s.valid_vocab > 0 ? s.valid_vocab : s.V;
  v["nll"].assign(s.N, 0);
  v["loss"].assign(s.N, 0);
  for (int64_t n = 0; n < s.N; ++n) {
    const auto target = static_cast<int64_t>(v["targets"][n]);
    if (target < 0) continue;
    std::vector<double> x(v["logits"].begin() + n * s.V, v["logits"].begin() + (n + 1) * s.V);
    if (s.softcap > 0)
      for (double& logit : x) logit = s.softcap * std::tanh(logit / s.softcap);
    double exps = 0;
    for (int64_t i = 0; i < V; ++i) exps += std::exp(x[i]);
    v["nll"][n] = std::log(exps) - x[target];
    v["loss"][n] = v["dnll"][n] * v["nll"][n];
  }
}

std::string name_of(const Sizes& s) {
  return str(s.N, " x ", s.V, s.valid_vocab > 0 ? str(" padded from ", s.valid_vocab) : "",
             s.softcap > 0 ? str(" capped ", s.softcap) : "");
}

// Random targets. Every fifth, except the first, is ignored.
Arg targets(const Sizes& s) {
  const int64_t V = s.valid_vocab > 0 ? s.valid_vocab : s.V;
  return {"targets", DType::i32, {s.N}, Role::constant, [=](int64_t n, double unit) {
            return n % 5 == 4 ? -100 : std::floor(unit * static_cast<double>(V));
          }};
}

CrossEntropyForward forward_args(const Tensors& t, const Sizes& s) {
  return {.loss = t["loss"],
          .logits = t["logits"],
          .targets = t["targets"],
          .target_weights = t["dnll"],
          .valid_vocab = s.valid_vocab};
}

CrossEntropyBackward backward_args(const Tensors& t, const Sizes& s) {
  return {.dlogits = t["dlogits"],
          .loss = t["loss"],
          .logits = t[s.softcap > 0 ? "capped" : "logits"],
          .targets = t["targets"],
          .target_weights = t["dnll"],
          .valid_vocab = s.valid_vocab,
          .softcap = static_cast<float>(s.softcap)};
}

Case forward_case(DType dtype, const Sizes& s) {
  return {.op = "cross_entropy_forward",
          .shape = name_of(s),
          .dtype = dtype,
          .args = {{"logits", dtype, {s.N, s.V}, Role::input},
                   targets(s),
                   {"dnll", DType::f32, {s.N}, Role::constant},
                   {"loss", DType::f32, {s.N}, Role::output}},
          .run = [=](Stream& stream, Arena&,
                     const Tensors& t) { cross_entropy_forward(stream, forward_args(t, s)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, s)); },
          .flops = [=](const Tensors& t) { return flops(forward_args(t, s)); },
          .reference = [=](Values& v) { formula(v, s); }};
}

// The gradient has the dtype of the case; the logits may be wider.
Case backward_case(DType dtype, DType logits, const Sizes& s) {
  return {.op = "cross_entropy_backward",
          .shape = str(name_of(s), logits == dtype ? "" : str(" of ", logits)),
          .dtype = dtype,
          .args = {{"logits", logits, {s.N, s.V}, Role::input},
                   targets(s),
                   {"dnll", DType::f32, {s.N}, Role::constant},
                   {"dlogits", dtype, {s.N, s.V}, Role::output},
                   {"loss", DType::f32, {s.N}, Role::output}},
          .run = [=](Stream& stream, Arena&,
                     const Tensors& t) { cross_entropy_backward(stream, backward_args(t, s)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, s)); },
          .flops = [=](const Tensors& t) { return flops(backward_args(t, s)); },
          .reference = [=](Values& v) { formula(v, s); },
          .gradients = true};
}

// The logits are capped before the op. Its gradient is with respect to the logits before the cap.
Case capped_case(DType dtype, Sizes s) {
  s.softcap = 0.5;
  Case c = backward_case(dtype, dtype, s);
  c.args.push_back({"capped", dtype, {s.N, s.V}, Role::saved});
  c.prepare = [=](Stream& stream, Arena&, const Tensors& t) {
    softcap(stream, {.y = t["capped"], .x = t["logits"], .cap = static_cast<float>(s.softcap)});
  };
  return c;
}

std::vector<Sizes> sizes(Scale scale) {
  if (scale == Scale::bench) return {{512, 50257}};
  if (scale == Scale::vm) return {{4, 1 << 15}};  // no row is ignored
  if (scale == Scale::golden) return {{6, 40}};
  return {{1, 1}, {3, 7}, {11, 16}, {5, 33}, {2, 40, 21}, {1, 1100}};
}

}  // namespace

std::vector<Case> cross_entropy_cases(Scale scale) {
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  if (scale == Scale::test) dtypes.push_back(DType::f16);
  std::vector<Case> cases;
  for (const DType dtype : dtypes)
    for (const Sizes& s : sizes(scale)) {
      cases.push_back(forward_case(dtype, s));
      cases.push_back(backward_case(dtype, dtype, s));
      if (dtype == DType::f32 && scale != Scale::golden) cases.push_back(capped_case(dtype, s));
      if (dtype != DType::f32 && scale != Scale::golden) cases.push_back(backward_case(dtype, DType::f32, s));
    }
  if (scale == Scale::bench) {
    const Sizes llama3{8192, 128256}, chunk_of_head{4096, 151936};
    for (Case c : {forward_case(DType::bf16, llama3), backward_case(DType::bf16, DType::bf16, llama3),
                   backward_case(DType::bf16, DType::f32, chunk_of_head)}) {
      c.needs_gpu = true;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace flatshard::bench
