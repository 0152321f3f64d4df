#pragma once
// Cases of optimizers: the third update of n elements, of which two thirds decay. An optimizer adds its state
// and its formula.

#include "bench/case.h"
#include "kernels/optimizer_update.h"

namespace flatshard::bench {

inline constexpr double kUpdateRate = 0.05, kUpdateDecay = 0.1, kUpdateClip = 0.375;

struct OptimizerOp {
  const char* name;
  void (*run)(Stream& stream, const OptimizerUpdate& a);
  double (*flops)(const OptimizerUpdate& a);
  double beta2 = 0.999;
  // The arguments of the state, in its order.
  std::vector<Arg> (*state)(int64_t n);
  // Updates p, which has decayed, and the state with the clipped gradients g.
  void (*formula)(Values& v, const std::vector<double>& g);
};

struct UpdateOptions {
  bool copy = true;
  bool skip = false;
};

inline int64_t update_decay_end(int64_t n) { return 2 * n / 3; }

inline OptimizerUpdate update_args(const OptimizerOp& op, const Tensors& t, int64_t n) {
  OptimizerUpdate a{.shard = {.p = t["p"],
                              .copy = t.has("copy") ? t["copy"] : Tensor{},
                              .g = t["g"],
                              .state = {},
                              .decay_end = update_decay_end(n)},
                    .grad_scale = t["grad_scale"],
                    .skip = t["skip"],
                    .lr = kUpdateRate,
                    .beta1 = 0.9,
                    .beta2 = op.beta2,
                    .weight_decay = kUpdateDecay,
                    .step = 3};
  Tensor* state = a.shard.state.data();
  for (const Arg& arg : op.state(n)) *state++ = t[arg.name];
  return a;
}

inline void reference_update(const OptimizerOp& op, Values& v, int64_t n) {
  if (v["skip"][0] != 0) return;
  std::vector<double> g = v["g"];
  for (double& element : g) element *= v["grad_scale"][0];
  for (int64_t i = 0; i < update_decay_end(n); ++i) v["p"][i] *= 1 - kUpdateRate * kUpdateDecay;
  op.formula(v, g);
  if (v.contains("copy")) v["copy"] = v["p"];
}

inline Case update_case(const OptimizerOp& op, DType dtype, int64_t n, UpdateOptions options = {}) {
  Case c{.op = op.name,
         .shape = str(n, options.copy ? "" : " no copy", options.skip ? " skip" : ""),
         .dtype = dtype,
         .args = {{"p", DType::f32, {n}, Role::updated}},
         .run = [=](Stream& s, Arena&, const Tensors& t) { op.run(s, update_args(op, t, n)); },
         .min_bytes = [=](const Tensors& t) { return min_bytes(update_args(op, t, n).shard); },
         .flops = [=](const Tensors& t) { return op.flops(update_args(op, t, n)); },
         .reference = [=](Values& v) { reference_update(op, v, n); }};
  for (const Arg& arg : op.state(n)) c.args.push_back(arg);
  c.args.push_back({"g", dtype, {n}, Role::input});
  c.args.push_back(
      {"grad_scale", DType::f32, {1}, Role::constant, [](int64_t, double) { return kUpdateClip; }});
  c.args.push_back({"skip", DType::i32, {1}, Role::constant, [=](int64_t, double) { return options.skip; }});
  if (options.copy) c.args.push_back({"copy", dtype, {n}, Role::updated});
  return c;
}

// `odd` are sizes for tests beside 8451, which is larger than the blocks of every kernel.
inline std::vector<Case> update_cases(const OptimizerOp& op, Scale scale, int64_t golden,
                                      std::initializer_list<int64_t> odd) {
  const int64_t n = scale == Scale::bench ? 1 << 24 : scale == Scale::vm ? 1 << 16 : golden;
  if (scale != Scale::test) return {update_case(op, DType::f32, n), update_case(op, DType::bf16, n)};
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : odd) cases.push_back(update_case(op, dtype, size));
  cases.push_back(update_case(op, DType::bf16, 8451));
  cases.push_back(update_case(op, DType::bf16, 300, {.copy = false}));
  cases.push_back(update_case(op, DType::bf16, 300, {.skip = true}));
  return cases;
}

}  // namespace flatshard::bench
