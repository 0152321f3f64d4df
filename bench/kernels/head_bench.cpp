// Cases of the output head, shared by tests and benchmark. The target weight is the gradient of the
// unweighted loss nll, so its argument is named dnll.

#include <cmath>

#include "bench/case.h"
#include "bench/kernels/head_setting.h"
#include "bench/kernels/kernels_of.h"
#include "kernels/head.h"

namespace flatshard::bench {
namespace {

void formula(Values& v, const HeadSetting& s) {
  const int64_t V = s.valid_vocab > 0 ? s.valid_vocab : s.V;
  v["nll"].assign(s.N, 0);
  v["loss"].assign(s.N, 0);
  for (int64_t n = 0; n < s.N; ++n) {
    const auto target = static_cast<int64_t>(v["targets"][n]);
    if (target < 0) continue;
    double exps = 0, at_target = 0;
    for (int64_t i = 0; i < V; ++i) {
      double logit = 0;
      for (int64_t c = 0; c < s.C; ++c) logit += v["x"][n * s.C + c] * v["w"][i * s.C + c];
      if (s.softcap > 0) logit = s.softcap * std::tanh(logit / s.softcap);
      exps += std::exp(logit);
      if (i == target) at_target = logit;
    }
    v["nll"][n] = std::log(exps) - at_target;
    v["loss"][n] = v["dnll"][n] * v["nll"][n];
  }
}

std::string name_of(const HeadSetting& s) {
  return str(s.N, " x ", s.C, " to ", s.V, s.chunk > 0 ? str(" by ", s.chunk) : "",
             s.softcap > 0 ? str(" capped ", s.softcap) : "", s.own ? " own" : "");
}

// Random targets. Every fifth, except the first, is ignored.
Arg targets(const HeadSetting& s) {
  const int64_t V = s.valid_vocab > 0 ? s.valid_vocab : s.V;
  return {"targets", DType::i32, {s.N}, Role::constant, [=](int64_t n, double unit) {
            return n % 5 == 4 ? -100 : std::floor(unit * static_cast<double>(V));
          }};
}

// Weights that make logits of order one, as in a trained model.
Arg weight(DType dtype, const HeadSetting& s) {
  const double size = 2 / std::sqrt(static_cast<double>(s.C));
  return {"w", dtype, {s.V, s.C}, Role::input, [=](int64_t, double unit) { return size * (2 * unit - 1); }};
}

HeadLossForward forward_args(const Tensors& t, const HeadSetting& s) {
  return {.loss = t["loss"],
          .x = t["x"],
          .w = t["w"],
          .targets = t["targets"],
          .target_weights = t["dnll"],
          .valid_vocab = s.valid_vocab,
          .chunk = s.chunk,
          .softcap = static_cast<float>(s.softcap)};
}

HeadLossBackward backward_args(const Tensors& t, const HeadSetting& s) {
  return {.dx = t["dx"],
          .dw = t["dw"],
          .loss = t["loss"],
          .x = t["x"],
          .w = t["w"],
          .targets = t["targets"],
          .target_weights = t["dnll"],
          .valid_vocab = s.valid_vocab,
          .chunk = s.chunk,
          .softcap = static_cast<float>(s.softcap)};
}

}  // namespace

Case head_forward_case(DType dtype, const HeadSetting& s) {
  return {.op = "head_loss_forward",
          .shape = name_of(s),
          .dtype = dtype,
          .args = {{"x", dtype, {s.N, s.C}, Role::input},
                   weight(dtype, s),
                   targets(s),
                   {"dnll", DType::f32, {s.N}, Role::constant},
                   {"loss", DType::f32, {s.N}, Role::output}},
          .run =
              [=](Stream& stream, Arena& scratch, const Tensors& t) {
                const KernelsOf kernels(s.own);
                head_loss_forward(stream, scratch, forward_args(t, s));
              },
          .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, s)); },
          .flops = [=](const Tensors& t) { return flops(forward_args(t, s)); },
          .reference = [=](Values& v) { formula(v, s); },
          .matrix_bound = true};
}

Case head_backward_case(DType dtype, const HeadSetting& s) {
  return {.op = "head_loss_backward",
          .shape = name_of(s),
          .dtype = dtype,
          .args = {{"x", dtype, {s.N, s.C}, Role::input},
                   weight(dtype, s),
                   targets(s),
                   {"dnll", DType::f32, {s.N}, Role::constant},
                   {"loss", DType::f32, {s.N}, Role::output},
                   {"dx", dtype, {s.N, s.C}, Role::output},
                   {"dw", DType::f32, {s.V, s.C}, Role::updated}},
          .run =
              [=](Stream& stream, Arena& scratch, const Tensors& t) {
                const KernelsOf kernels(s.own);
                head_loss_backward(stream, scratch, backward_args(t, s));
              },
          .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, s)); },
          .flops = [=](const Tensors& t) { return flops(backward_args(t, s)); },
          .reference = [=](Values& v) { formula(v, s); },
          .gradients = true,
          // dlogits is rounded before sums with cancellation.
          .tolerance_factor = dtype == DType::f32 ? 1.0 : 2.0,
          .matrix_bound = true};
}

namespace {

std::vector<HeadSetting> sizes(Scale scale) {
  if (scale == Scale::bench) return {{1024, 768, 50257}};
  if (scale == Scale::vm) return {};  // products are computed by a library
  if (scale == Scale::golden) return {{7, 12, 20, 3}, {7, 12, 20, 3, 0, 0.5}};
  return {{1, 1, 1}, {5, 3, 7, 2}, {9, 8, 16, 4}, {6, 17, 5, 100, 4}, {5, 6, 9, 2, 0, 0.5}};
}

}  // namespace

std::vector<Case> head_cases(Scale scale) {
  std::vector<Case> cases = both_directions(scale, sizes(scale), head_forward_case, head_backward_case);
  if (scale == Scale::bench) {
    constexpr int64_t kTokens = 16384, kVocab = 151936;
    const auto add = [&](Case c) {
      c.needs_gpu = true;
      cases.push_back(std::move(c));
    };
    for (const bool own : {false, true}) {
      HeadSetting s{.N = kTokens, .C = 1536, .V = kVocab, .own = own};
      add(head_forward_case(DType::bf16, s));
      for (const int64_t chunk : {0, 256, 1024, 2048, 8192, 16384}) {  // 0: the default
        s.chunk = chunk;
        add(head_backward_case(DType::bf16, s));
        cases.back().is_detail = chunk > 256;
      }
    }
  }
  return cases;
}

}  // namespace flatshard::bench
