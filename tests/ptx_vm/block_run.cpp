#include "tests/ptx_vm/block_run.h"

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/qk_norm.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "model/names.h"
#include "runtime/memory.h"
#include "tests/model/gradients.h"

namespace flatshard::ptx_vm {

BlockRun::BlockRun(const ModelConfig& config, int64_t tokens) : tokens_(tokens), model_(config, memory_) {
  allocate();
  StreamSet planning(Device::cuda(0), {.planning = true});
  Stream& planned = planning.add("compute");
  forward(planned);
  backward(planned);
  for (Arena* arena : {&memory_, &saved_, &scratch_}) arena->commit();
  model_ = Model(config, memory_);
  allocate();
  model_.fill_tables(stream_);
  for (const Tensor& t : {x_, y_, dx_, positions_}) zero(stream_, t);
  for (const std::vector<Tensor>* list : {&parameters_[1], &gradients_[1]})
    for (const Tensor& t : *list) zero(stream_, t);
  std::vector<int32_t> bounds{0, static_cast<int32_t>(tokens)};
  copy(stream_, boundaries_, tensor_of(bounds.data(), {2}));
  stream_.sync();
}

Counts BlockRun::count_forward() {
  return counts_of([&] { forward(stream_), stream_.sync(); });
}
Counts BlockRun::count_backward() {
  return counts_of([&] { backward(stream_), stream_.sync(); });
}

void BlockRun::allocate() {
  const int64_t C = model_.config().hidden;
  for (Tensor* t : {&x_, &y_, &dx_}) *t = memory_.alloc(DType::bf16, {tokens_, C});
  positions_ = memory_.alloc(DType::i32, {tokens_});
  boundaries_ = memory_.alloc(DType::i32, {2});
  parameters_ = allocate_parameters(model_, DType::bf16, memory_);
  gradients_ = allocate_parameters(model_, DType::f32, memory_);
  if (model_.config().adapters.empty()) return;
  const std::vector<ParamSpec>& specs = model_.param_lists()[1].specs();
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].role != ParamRole::adapter) gradients_[1][i] = {};
}

LayerCall BlockRun::call(Stream& stream) {
  return {.stream = stream,
          .scratch = scratch_,
          .saved = saved_,
          .tokens = {},
          .positions = positions_,
          .boundaries = boundaries_,
          .targets = {},
          .target_weights = {},
          .losses = {}};
}

void BlockRun::forward(Stream& stream) {
  LayerCall c = call(stream);
  model_.layer(1).forward(c, ParamView(parameters_[1]), y_, x_);
}

void BlockRun::backward(Stream& stream) {
  LayerCall c = call(stream);
  const test::Gradients gradients(gradients_[1]);
  model_.layer(1).backward(c, ParamView(parameters_[1]), gradients.view(), dx_, x_);
}

BlockBytes least_bytes(const ModelConfig& m, int64_t tokens, bool accumulate) {
  const auto tensor = [](DType dtype, const Shape& shape) { return Tensor{nullptr, dtype, shape, {}}; };
  const auto bf16_tensor = [&](const Shape& shape) { return tensor(DType::bf16, shape); };
  const auto f32_tensor = [&](const Shape& shape) { return tensor(DType::f32, shape); };
  const int64_t T = tokens, C = m.hidden, Hq = m.heads, Hkv = m.kv_heads, D = m.head_dim, F = m.ffn;
  const Tensor x = bf16_tensor({T, C}), w = bf16_tensor({C}), rstd = f32_tensor({T});
  const Tensor q = bf16_tensor({T, Hq, D}), k = bf16_tensor({T, Hkv, D}),
               heads = bf16_tensor({T, Hq + Hkv, D}), hidden = bf16_tensor({T, F}),
               positions = tensor(DType::i32, {T}), table = f32_tensor({T, D}), lse = f32_tensor({Hq, T}),
               wd = bf16_tensor({D}), dwd = f32_tensor({D}),
               head_rstd = f32_tensor({T, m.qk_norm_width == QkNormWidth::head ? Hq + Hkv : 2});
  BlockBytes least;
  // A norm after a layer adds its output to the stream, and one before a layer its gradient.
  const double norms_before = param_names(m.family).attention_norm.empty() ? 0 : 2,
               norms_after = param_names(m.family).attention_out_norm.empty() ? 0 : 2;
  const auto norm_forward = [&](const Tensor& addend) {
    return min_bytes(RmsNormForward{.y = x, .rstd = rstd, .x = x, .w = w, .addend = addend, .eps = 1});
  };
  const auto norm_backward = [&](bool accumulate_dx) {
    return min_bytes(RmsNormBackward{.dx = x,
                                     .dw = f32_tensor({C}),
                                     .dy = x,
                                     .x = x,
                                     .w = w,
                                     .rstd = rstd,
                                     .accumulate_dx = accumulate_dx,
                                     .accumulate = accumulate});
  };
  least.forward =
      norms_before * norm_forward({}) + norms_after * norm_forward(x) +
      min_bytes(AttentionForward{.o = q, .lse = lse, .q = q, .k = k, .v = k, .mask = {}, .scale = 1}) +
      min_bytes(SwigluForward{.y = hidden, .gate = hidden, .up = hidden});
  least.backward =
      norms_before * norm_backward(true) + norms_after * norm_backward(false) +
      min_bytes(AttentionBackward{.dq = q,
                                  .dk = k,
                                  .dv = k,
                                  .grad_o = q,
                                  .q = q,
                                  .k = k,
                                  .v = k,
                                  .o = q,
                                  .lse = lse,
                                  .mask = {},
                                  .scale = 1}) +
      min_bytes(SwigluBackward{.dgate = hidden, .dup = hidden, .dy = hidden, .gate = hidden, .up = hidden});
  if (*m.qk_norm) {
    least.forward += min_bytes(QkNormForward{.y = heads,
                                             .rstd = head_rstd,
                                             .x = heads,
                                             .wq = wd,
                                             .wk = wd,
                                             .positions = positions,
                                             .table = table,
                                             .query_heads = Hq,
                                             .eps = 1});
    least.backward += min_bytes(QkNormBackward{.dx = heads,
                                               .dwq = dwd,
                                               .dwk = dwd,
                                               .dy = heads,
                                               .x = heads,
                                               .wq = wd,
                                               .wk = wd,
                                               .rstd = head_rstd,
                                               .positions = positions,
                                               .table = table,
                                               .query_heads = Hq,
                                               .accumulate = accumulate});
  } else {
    least.forward += min_bytes(RopeForward{.y = heads, .x = heads, .positions = positions, .table = table});
    least.backward +=
        min_bytes(RopeBackward{.dx = heads, .dy = heads, .positions = positions, .table = table});
  }
  if (*m.qkv_bias)
    least.backward += min_bytes(BiasBackward{.db = f32_tensor({(Hq + 2 * Hkv) * D}),
                                             .dy = bf16_tensor({T, (Hq + 2 * Hkv) * D}),
                                             .accumulate = accumulate});
  return least;
}

}  // namespace flatshard::ptx_vm
