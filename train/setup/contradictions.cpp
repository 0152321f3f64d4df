#include "train/setup/contradictions.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/attention_one_pass.h"
#include "model/names.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "text/jinja/template_date.h"

namespace flatshard {

namespace {

void check_data(const DataConfig& data, Problems& problems) {
  problems.check(data.seq_len > 0, "data.seq_len is ", data.seq_len, ", must be positive");
  problems.attempt([&] { check_data_files("data.train", data.train); });
  problems.attempt([&] { check_data_files("data.eval", data.eval); });
  if (!data.date.empty()) problems.attempt([&] { check_date("data.date", data.date); });
  const size_t files = named_files(data.train).size();
  problems.check(data.weights.empty() || data.weights.size() == files, "data.weights has ",
                 counted(std::ssize(data.weights), "number"), ", but data.train names ",
                 counted(static_cast<int64_t>(files), "file"), ": give one for each");
}

// Evaluations, and what is done at an evaluation.
void check_evaluations(const Config& c, Problems& problems) {
  const bool evaluates = c.train.eval_every != 0 || c.train.eval_each_epoch;
  problems.attempt([&] { steps_between(c.train.eval_every, kMostSteps, "train.eval_every"); });
  problems.attempt(
      [&] { steps_between(save_interval(c.checkpoint).steps, kMostSteps, "checkpoint.save_every"); });
  constexpr const char* kNone =
      ", but train.eval_every = 0 and train.eval_each_epoch = false make none: set one of them";
  problems.attempt([&] {
    const SaveInterval best = best_interval(c.checkpoint).value_or(SaveInterval{});
    steps_between(best.steps, kMostSteps, "checkpoint.best_every");
    problems.check((best.steps == 0 && best.seconds == 0) || evaluates, "checkpoint.best_every = \"",
                   c.checkpoint.best_every, "\" saves evaluations", kNone);
  });
  const bool has_eval = !named_files(c.data.eval).empty(), samples = !c.log.samples.empty();
  problems.check(has_eval || samples || !evaluates,
                 c.train.eval_every != 0 ? "train.eval_every" : "train.eval_each_epoch",
                 " is set, but data.eval names no file to evaluate on, and log.samples no prompts");
  problems.check(!samples || evaluates || !c.init_from.empty(),
                 "log.samples is continued at every evaluation", kNone);
  problems.check(c.train.stop_after_no_improvement == 0 || evaluates || !has_eval,
                 "train.stop_after_no_improvement = ", c.train.stop_after_no_improvement,
                 " counts evaluations", kNone);
  problems.check(samples || c.log.sample_length == 0, "log.sample_length = ", c.log.sample_length,
                 " has no effect without log.samples: remove it, or name a file of prompts");
  problems.check(c.train.stop_after_no_improvement == 0 || has_eval,
                 "train.stop_after_no_improvement = ", c.train.stop_after_no_improvement,
                 " counts evaluations, but data.eval names no file to evaluate on: set it and "
                 "train.eval_every, or remove the key");
}

// Schedule, optimizer and precision.
void check_updates(const Config& c, Problems& problems) {
  problems.check(c.schedule.warmup_steps == 0 || c.schedule.warmup_ratio == 0,
                 "schedule.warmup_steps = ", c.schedule.warmup_steps,
                 " and schedule.warmup_ratio = ", c.schedule.warmup_ratio, ": set only one of them");
  problems.check(c.optimizer.lr_scaling == LrScaling::none || c.optimizer.base_batch_size > 0,
                 "optimizer.lr_scaling = \"", c.optimizer.lr_scaling,
                 "\" needs optimizer.base_batch_size, the batch size that optimizer.lr was tuned for");
  problems.check(
      c.optimizer.lr_scaling != LrScaling::none || c.optimizer.base_batch_size == 0,
      "optimizer.base_batch_size has no effect without optimizer.lr_scaling: remove it, or set lr_scaling");
  problems.check(c.optimizer.betas[0] < 1 && c.optimizer.betas[1] < 1, "optimizer.betas are ",
                 c.optimizer.betas[0], " and ", c.optimizer.betas[1], ", must be below 1");
  problems.check(c.optimizer.kind.row->has_eps || c.optimizer.eps == OptimizerConfig{}.eps,
                 "optimizer.eps has no effect with optimizer.kind = \"", name_of(c.optimizer.kind),
                 "\", which has no epsilon: remove it");
  problems.check(
      !c.train.offload_activations || repeats_blocks(c.train.recompute),
      "train.offload_activations = true needs train.recompute = true or \"except_attention\": all other "
      "activations stay where they are");
  problems.check(!c.precision.tf32 || c.precision.compute == Precision::fp32,
                 "precision.tf32 = true applies to fp32 matrix products, but precision.compute is \"",
                 c.precision.compute, "\": remove one of them");
  problems.check(c.optimizer.grad_clip == 0 || c.optimizer.grad_clip >= kLeastFloat,
                 "optimizer.grad_clip is ", c.optimizer.grad_clip, ", must be 0 (no clipping) or at least ",
                 kLeastFloat);
  if (c.train.steps > 0) problems.attempt([&] { check_schedule(c.schedule, c.train.steps); });
  problems.check(
      !c.train.skip_nonfinite || c.precision.compute != Precision::fp16 ||
          c.precision.loss_scale != "dynamic",
      "train.skip_nonfinite = true has no effect with a dynamic loss scale, which skips such steps anyway: "
      "set it to false");
}

// A reason why micro-steps cannot be captured, and the beginning of the remedy: "remove X, or ".
struct Obstacle {
  std::string reason, remedy;
};

// A graph repeats the shapes and scalars of its capture, and the host takes no part in it. (The factors of a
// loss of whole answers are such scalars, too, but packings that cut no answer are excluded already.)
std::vector<Obstacle> obstacles_to_graphs(const RunSetup& s) {
  // Each graph takes device memory, and with more micro-steps than this the launch overhead hardly matters.
  constexpr int64_t kMostGraphs = 64;
  std::vector<Obstacle> all;
  const auto add = [&](bool prevents, const std::string& reason, const std::string& remedy) {
    if (prevents) all.push_back({reason, remedy});
  };
  add(s.model.vision.has_value(), "images change the number of rows", "");
  add(s.pipeline.stages > 1,
      str("parallel.stages = ", s.pipeline.stages, " mixes the passes of several micro-steps"), "");
  add(s.transport == Transport::staged && s.ranks() > 1,
      "the host takes part in every exchange of GPU ranks through MPI",
      "give each rank its own GPU and communicate over NCCL, or ");
  add(s.config.parallel.offload, "parallel.offload computes sums on the host", "remove it, or ");
  add(s.config.lora.rank > 0 && s.config.lora.dropout > 0,
      str("lora.dropout = ", s.config.lora.dropout, " draws new masks in every step"), "remove it, or ");
  add(s.model.experts > 0 && s.config.precision.compute == Precision::fp16 &&
          s.config.precision.loss_scale == "dynamic",
      "the losses of routers change with a dynamic loss scale", "set precision.loss_scale to a number, or ");
  add(s.mask_documents(),
      str("data.packing = \"", s.config.data.packing, "\" changes the number of documents"),
      "use \"wrapped\", or ");
  add(s.batching.micro_steps > kMostGraphs,
      str(s.batching.micro_steps, " micro-steps need as many graphs, more than ", kMostGraphs),
      "raise train.batch_size_per_device, or ");
  return all;
}

}  // namespace

void check_together(const Config& c, Problems& problems) {
  problems.check(!c.run.dir.empty(), "run.dir is empty, must name a folder");
  check_data(c.data, problems);
  problems.check(c.optimizer.lr > 0, "optimizer.lr is ", c.optimizer.lr, ", must be positive");
  problems.check(c.run.resume != "auto" || c.checkpoint.on_sigterm,
                 "run.resume = \"auto\" resumes a run that a signal has stopped, but checkpoint.on_sigterm = "
                 "false saves no checkpoint then: leave it out");
  check_evaluations(c, problems);
  check_updates(c, problems);
  constexpr double kLeastGbps = 1e-3;
  const double gbps = c.parallel.bandwidth_gbps;
  problems.check(gbps == 0 || gbps >= kLeastGbps, "parallel.bandwidth_gbps is ", gbps,
                 ", must be 0 (measure) or at least ", kLeastGbps);
}

void check_graphs(RunSetup& s, Problems& problems) {
  const std::vector<Obstacle> obstacles = obstacles_to_graphs(s);
  if (!obstacles.empty()) s.why_no_graphs = obstacles.front().reason;
  if (s.config.run.cuda_graphs != CudaGraphs::on || !s.device.is_cuda()) return;
  for (const auto& [reason, remedy] : obstacles)
    problems.check(false, "run.cuda_graphs = true, but ", reason, ": ", remedy,
                   "set run.cuda_graphs to \"auto\"");
}

void check_attention(const RunSetup& s, Problems& problems) {
  if (s.config.run.attention != AttentionChoice::one_pass || !s.device.is_cuda()) return;
  const auto check = [&](bool supports, const auto&... what) {
    problems.check(supports, "run.attention = \"one_pass\" ", what..., ": set it to \"auto\"");
  };
  const int64_t D = s.model.head_dim;
  check(size_of(s.compute) == 2, "supports 16-bit types, but precision.compute is \"",
        s.config.precision.compute, '"');
  check(is_one_pass_head(D),
        "supports heads of 8 to 64 and of 104 to 128, in multiples of 8, but the model has ", D);
  check(s.model.causal, "supports causal attention, but the model attends to all positions");
  check(*s.model.attention_softcap == 0, "supports no soft cap of scores, but the model has one of ",
        *s.model.attention_softcap);
}

namespace {

// Rows of matrices that products of experts multiply on a GPU begin at multiples of 16 bytes.
void check_rows_of_experts(const ModelConfig& model, Problems& problems) {
  constexpr int64_t kUnit = 8;
  for (const auto& [key, size] :
       {std::pair{"model.hidden", model.hidden}, {"model.expert_ffn", model.expert_ffn}})
    problems.check(size % kUnit == 0, key, " is ", size, ", must be a multiple of ", kUnit,
                   " for the products of experts on a GPU");
  for (const auto& [path, adapter] : model.adapters) {
    if (!is_of_experts(path) || adapter.rank % kUnit == 0) continue;
    problems.add(str("lora.rank of ", path, " is ", adapter.rank, ", must be a multiple of ", kUnit,
                     " for adapters of experts on a GPU"));
    return;
  }
}

}  // namespace

void check_experts(const RunSetup& s, Problems& problems) {
  const TrainConfig& train = s.config.train;
  if (s.model.experts == 0) {
    problems.check(train.router_aux_loss.value_or(0) == 0 && train.router_z_loss == 0,
                   "train.router_aux_loss and train.router_z_loss have no effect with model.family = ",
                   s.model.family, ", which has no experts: remove them");
    problems.check(train.router_bias_rate == 0,
                   "train.router_bias_rate has no effect with model.family = ", s.model.family,
                   ", which has no experts: remove it");
    problems.check(!s.config.run.balanced_routing,
                   "run.balanced_routing has no effect with model.family = ", s.model.family,
                   ", which has no experts: remove it");
    return;
  }
  problems.check(train.router_bias_rate == 0 || (s.model.sigmoid_router && s.model.adapters.empty()),
                 "train.router_bias_rate = ", train.router_bias_rate,
                 s.model.sigmoid_router ? ": adapters are trained, and the base stays: remove it"
                                        : str(" has no effect with model.family = ", s.model.family,
                                              ", whose routers have no biases: remove it"));
  problems.check(!s.device.is_cuda() || size_of(s.compute) == 2, "model.experts = ", s.model.experts,
                 ": on a GPU the products of experts take 16 bits, but precision.compute is \"",
                 s.config.precision.compute, "\": set it to \"bf16\"");
  problems.check(!s.model.sigmoid_router || (s.router_aux_loss() == 0 && train.router_z_loss == 0),
                 "train.router_aux_loss and train.router_z_loss have no effect with model.family = ",
                 s.model.family, ", which has no such losses: remove them");
  problems.check(train.tile == 0, "train.tile = ", train.tile,
                 " does not support mixtures of experts yet: remove it");
  if (s.device.is_cuda()) check_rows_of_experts(s.model, problems);
}

namespace {

// The first consecutive ranks that should divide experts among them and are on several hosts; "" if none are.
std::string expert_group_on_several_hosts(const RunSetup& s) {
  for (size_t rank = 0; rank < s.hosts.size(); ++rank) {
    const size_t first = rank - rank % static_cast<size_t>(s.expert_ranks);
    if (s.hosts[rank] != s.hosts[first])
      return str(first, " to ", first + static_cast<size_t>(s.expert_ranks) - 1);
  }
  return "";
}

// The experts of each block are one unit, in parts of whole experts.
void check_units_of_experts(const RunSetup& s, Problems& problems) {
  const std::string key = str("parallel.expert_ranks = ", s.expert_ranks);
  for (size_t unit = 0; unit < s.units_of_model->units().size(); ++unit) {
    const ParamList& params = s.units_of_model->units()[unit];
    const UnitRole& role = s.units_of_model->roles()[unit];
    bool whole = true, trained = true;
    for (const ParamSpec& spec : params.specs()) {
      const std::string experts = module_of_experts(spec.name);
      whole = whole && (role.parts == 1 ? experts.empty() : experts == role.name);
      trained =
          trained && (role.parts == 1 || (spec.trainable && spec.decay == params.specs().front().decay));
    }
    problems.check(
        whole, key, " needs the experts of each block in a unit of their own, but unit \"", role.name,
        "\" mixes them with other parameters, or holds only some: set parallel.wrap = \"block\", and remove "
        "experts from parallel.replicate");
    problems.check(trained, key,
                   " needs all experts of a block fully trained, with the same weight decay, but some of ",
                   role.name, " are frozen, have adapters or 4-bit weights, or decay differently: remove it");
    if (!whole || !trained) return;
    if (role.parts == 1) continue;
    const FlatLayout layout = FlatLayout::trainable(params, s.groups.size, s.groups.count());
    const FlatLayout::Extent& last = layout.extents().back();
    problems.check(last.begin + last.size == layout.size(), key, ": the ", params.parameter_count(),
                   " parameters of ", role.name, " do not divide into ", s.groups.size,
                   " shards of a multiple of ", FlatLayout::kShardMultiple * s.groups.count(),
                   ": use fewer ranks, or remove it");
    if (last.begin + last.size != layout.size()) return;
  }
}

}  // namespace

void check_expert_ranks(const RunSetup& s, Problems& problems) {
  const int64_t G = s.expert_ranks;
  if (G == 1) return;
  const std::string key = str("parallel.expert_ranks = ", G);
  const ParallelConfig& parallel = s.config.parallel;
  if (s.model.experts == 0) {
    problems.add(
        str(key, " has no effect with model.family = ", s.model.family, ", which has no experts: remove it"));
    return;
  }
  problems.check(std::has_single_bit(static_cast<uint64_t>(G)), key, " must be a power of two");
  problems.check(s.model.experts % G == 0, key, " does not divide model.experts = ", s.model.experts,
                 ": use a power of two that does");
  problems.check(s.units.policy.params, key,
                 " needs sharded parameters: set parallel.strategy to \"full_shard\" or \"hybrid\", not \"",
                 parallel.strategy, '"');
  problems.check(!s.units.policy.params || s.groups.size % G == 0, key, " does not divide the ",
                 s.groups.size, " ranks that share one copy of the parameters: use a power of two that does");
  problems.check(s.units.reduction == Reduction::exact, key,
                 " needs exact sums: set parallel.reduction = \"exact\", not \"", parallel.reduction, '"');
  problems.check(s.units.policy.grads || !s.units.policy.params, key,
                 " needs parallel.accumulation = \"sharded\", not \"", parallel.accumulation, '"');
  problems.check(parallel.levels == LevelChoice::automatic, key,
                 " makes its ranks exchange first, so that parallel.levels = \"", parallel.levels,
                 "\" has no effect: remove one of them");
  problems.check(s.units.wire == DType::f32, key, " needs precision.reduce = \"fp32\", not \"",
                 s.config.precision.reduce, '"');
  const std::string apart = expert_group_on_several_hosts(s);
  problems.check(apart.empty(), key, ": ranks ", apart,
                 " span several hosts: set it to at most the ranks of a host");
  if (problems.empty() && s.units_of_model) check_units_of_experts(s, problems);
}

void check_loss(const RunSetup& s, Problems& problems) {
  const AnswerLoss &loss = s.config.loss, unset;
  const auto only = [&](const char* key, bool is_set, bool is_read, const char* read_by) {
    problems.check(!is_set || is_read, key, " has no effect with train.loss = \"", loss.kind,
                   "\": remove it, or set train.loss to ", read_by);
  };
  const bool dpo = loss.kind == LossKind::dpo, ipo = loss.kind == LossKind::ipo,
             kto = loss.kind == LossKind::kto, policy = loss.kind == LossKind::policy;
  only("preference.beta", loss.beta != unset.beta, loss.has_pairs() || kto,
       "\"dpo\", \"ipo\", \"orpo\" or \"kto\"");
  only("preference.desirable_weight", loss.desirable_weight != unset.desirable_weight, kto, "\"kto\"");
  only("preference.undesirable_weight", loss.undesirable_weight != unset.undesirable_weight, kto, "\"kto\"");
  only("preference.label_smoothing", loss.label_smoothing > 0, dpo, "\"dpo\"");
  only("preference.reference_free", loss.reference_free, dpo, "\"dpo\"");
  only("preference.sft_weight", loss.sft_weight > 0, dpo || ipo, "\"dpo\" or \"ipo\"");
  only("policy.clip_low", loss.clip_low != unset.clip_low, policy, "\"policy\"");
  only("policy.clip_high", loss.clip_high != unset.clip_high, policy, "\"policy\"");
  only("policy.kl_weight", loss.kl_weight > 0, policy, "\"policy\"");
  only("policy.ratio", loss.ratio != unset.ratio, policy, "\"policy\"");
  only("policy.mean", loss.mean != unset.mean, policy, "\"policy\"");
  if (!loss.is_used()) return;
  const Packing packing = s.config.data.packing;
  problems.check(packing == Packing::best_fit || packing == Packing::none, "train.loss = \"", loss.kind,
                 "\" compares whole answers, which data.packing = \"", packing,
                 "\" could cut: set data.packing = \"best_fit\" or \"none\"");
  problems.check(!s.model.vision, "train.loss = \"", loss.kind,
                 "\" does not train models that read images: set train.loss = \"sft\"");
}

void check_sizes(const RunSetup& s, Problems& problems) {
  problems.check(s.config.log.sample_length <= s.model.max_positions,
                 "log.sample_length = ", s.config.log.sample_length,
                 " is longer than model.max_positions = ", s.model.max_positions);
  if (s.seq_len() == 0) return;
  const auto check_tokens = [&](const char* key, int64_t sequences) {
    problems.check(sequences <= kMostAttentionRows / s.seq_len(), "data.seq_len = ", s.seq_len(),
                   " times train.", key, " = ", sequences, " is ", s.seq_len() * sequences,
                   " tokens, must be at most ", kMostAttentionRows);
  };
  check_tokens(
      s.config.train.lane_size > 0 && s.batching.lane_steps == 1 ? "lane_size" : "batch_size_per_device",
      s.batching.lane_sequences);
  check_tokens(
      s.config.train.eval_batch_size_per_device > 0 ? "eval_batch_size_per_device" : "batch_size_per_device",
      s.eval_sequences);
  constexpr int64_t kMostBlocks = 65536;  // each lane has its own layers
  problems.check(s.batching.lanes * s.model.layers <= kMostBlocks,
                 "train.batch_size_per_device = ", s.config.train.batch_size_per_device, " in ",
                 s.batching.lanes, " lanes, times model.layers = ", s.model.layers, ", is ",
                 s.batching.lanes * s.model.layers, " blocks, must be at most ", kMostBlocks,
                 ": raise train.lane_size");
}

void check_learning_rate(const RunSetup& s, Problems& problems) {
  const OptimizerConfig& o = s.config.optimizer;
  const bool complete =
      o.lr > 0 && o.betas[0] < 1 && (o.lr_scaling == LrScaling::none || o.base_batch_size > 0);
  if (!complete) return;
  const double lr = s.peak_lr(), first = lr / (1 - o.betas[0]), decay = lr * o.weight_decay;
  const std::string scaled =
      o.lr_scaling == LrScaling::none ? "" : str(", scaled by optimizer.lr_scaling to ", lr);
  problems.check(lr >= kLeastFloat && first <= kMostFloat, "optimizer.lr is ", o.lr, scaled,
                 ": the first step is ", first, ", must be from ", kLeastFloat, " to ", kMostFloat);
  problems.check(decay <= kMostFloat, "optimizer.lr = ", o.lr, scaled,
                 " times optimizer.weight_decay = ", o.weight_decay, " is ", decay, ", must be at most ",
                 kMostFloat);
}

}  // namespace flatshard
