#include "tests/ptx_vm/step_run.h"

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/rmsnorm.h"
#include "kernels/sum_squares.h"
#include "tests/ptx_vm/block_run.h"

namespace flatshard::ptx_vm {
namespace {

constexpr double kRate = 1e-4;

Config config_of(const ModelConfig& model, int64_t tokens, int64_t micro_steps, const LoraConfig& lora,
                 const QuantConfig& quant) {
  Config c;
  c.run.device = DeviceChoice::cuda;
  if (product_kernels() == ProductKernels::own) c.run.products = ProductChoice::own;  // the caller's choice
  c.run.cuda_graphs = CudaGraphs::off;  // the launches of a step are counted one by one
  c.model = model;
  c.lora = lora;
  c.quant = quant;
  c.data.seq_len = tokens;
  c.train.steps = 1;
  c.train.total_batch_size = micro_steps;
  c.train.batch_size_per_device = 1;
  c.optimizer.lr = kRate;
  c.optimizer.grad_clip = 1;
  return c;
}

Tensor without_memory(DType dtype, const Shape& shape) { return {nullptr, dtype, shape, {}}; }

// A micro-step of the layers at both ends: the embedding, the last norm and the losses.
double least_bytes_of_ends(const ModelConfig& m, int64_t T, bool accumulate) {
  const Tensor x = without_memory(DType::bf16, {T, m.hidden}), w = without_memory(DType::bf16, {m.hidden}),
               per_token = without_memory(DType::f32, {T}), tokens = without_memory(DType::i32, {T}),
               dw = without_memory(DType::f32, {m.vocab, m.hidden});
  const bool clears = !*m.tied && !accumulate;  // rows of tokens that do not occur
  return min_bytes(EmbeddingForward{.y = x, .w = {}, .tokens = tokens}) +
         min_bytes(RmsNormForward{.y = x, .rstd = per_token, .x = x, .w = w, .eps = 1}) +
         min_bytes(CrossEntropyBackward{.dlogits = without_memory(DType::bf16, {T, m.vocab}),
                                        .loss = per_token,
                                        .logits = without_memory(DType::f32, {T, m.vocab}),
                                        .targets = tokens,
                                        .target_weights = per_token}) +
         min_bytes(RmsNormBackward{.dx = x,
                                   .dw = without_memory(DType::f32, {m.hidden}),
                                   .dy = x,
                                   .x = x,
                                   .w = w,
                                   .rstd = per_token,
                                   .accumulate = accumulate}) +
         min_bytes(EmbeddingBackward{.dw = dw, .dy = x, .tokens = tokens}) +
         (clears ? static_cast<double>(dw.bytes()) : 0.0);
}

}  // namespace

StepRun::StepRun(const ModelConfig& model, int64_t tokens, const LoraConfig& lora, const QuantConfig& quant)
    : setup_(set_up(config_of(model, tokens, kMicroSteps, lora, quant), 1)),
      tokens_(kMicroSteps * tokens + 1, setup_.model.vocab),
      data_(tokens_.file(), {.seq_len = tokens,
                             .lane_sequences = setup_.batching.lane_sequences,
                             .total_sequences = kMicroSteps}),
      runtime_(setup_, world_) {
  runtime_.engine().initialize();
  step();
}

void StepRun::step() {
  runtime_.engine().step(data_, {.data_step = steps_,
                                 .update = steps_ + 1,
                                 .lr = kRate,
                                 .loss_scale = 1,
                                 .targets = data_.target_count(steps_)});
  runtime_.engine().gather().sync();
  ++steps_;
}

Counts StepRun::count() {
  return counts_of([&] { step(); });
}

double StepRun::least_bytes() {
  const ModelConfig& m = setup_.model;
  const int64_t T = setup_.seq_len();
  double all = 0;
  for (const bool accumulate : {false, true}) {
    const BlockBytes block = ptx_vm::least_bytes(m, T, accumulate);
    all += static_cast<double>(m.layers) * (block.forward + block.backward) +
           least_bytes_of_ends(m, T, accumulate);
  }
  for (const ShardedUnit& unit : runtime_.engine().units()) {
    const Tensor g = unit.shard().g, partials = without_memory(DType::f32, {squares_intervals(0, g.size())});
    all += min_bytes(SumSquares{.partials = partials, .x = g}) + min_bytes(unit.shard());
  }
  return all;
}

}  // namespace flatshard::ptx_vm
