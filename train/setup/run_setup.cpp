#include "train/setup/run_setup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "build_config.h"
#include "model/image_rows.h"
#include "model/param_groups.h"
#include "runtime/check.h"
#include "runtime/parallel.h"
#include "runtime/problems.h"
#include "runtime/text.h"
#include "text/images/image_input.h"
#include "text/jinja/template_date.h"
#include "train/setup/device_choice.h"
#include "train/setup/run_data.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// One spelling per path: drops "." components and repeated or trailing slashes. ".." stays, because the
// component before it may be a link.
std::string plain_path(const std::string& path) {
  fs::path plain;
  for (const fs::path& part : fs::path(path))
    if (!part.empty() && part != ".") plain /= part;
  return plain.empty() ? "." : plain.string();
}

ModelConfig model_of(const Config& c) {
  ModelConfig model = c.model;
  if (model.vocab <= INT32_MAX) {  // resolved() refuses larger ones
    const int64_t over = model.vocab % c.pad_to_multiple_of;
    if (over > 0) model.vocab += c.pad_to_multiple_of - over;
  }
  if (model.max_positions == 0) model.max_positions = c.data.seq_len;
  model.context = c.data.seq_len;
  model = resolved(model);
  check(c.data.seq_len <= model.max_positions, "data.seq_len = ", c.data.seq_len,
        " is longer than model.max_positions = ", model.max_positions);
  return model;
}

// Decides which layers of setup.model have 4-bit weights. If the published model has some, its files decide.
void set_quantized(RunSetup& setup) {
  const Config& c = setup.config;
  auto& quantized = setup.model.quantized;
  const bool published = !quantized.empty();
  const QuantConfig defaults;
  if (!c.quant.base && !published) {
    check(c.quant.block == defaults.block && !c.quant.nested && c.quant.compute == defaults.compute &&
              c.quant.skip.empty() && !c.quant.fp32_norms,
          "quant.base = \"none\", so that the other keys of quant have no effect: set it to \"nf4\" or "
          "\"fp4\", or remove them");
    return;
  }
  check(c.lora.rank > 0,
        published ? c.init_from + " has 4-bit weights" : str("quant.base = \"", *c.quant.base, '"'),
        ", but lora.rank = 0: 4-bit weights cannot be trained; set lora.rank to train adapters on them");
  setup.model.fp32_norms = c.quant.fp32_norms;
  if (compute_dtype(c.quant).value_or(setup.compute) != setup.compute)
    setup.warnings.push_back(str("quant.compute = \"", *c.quant.compute, "\", but precision.compute = \"",
                                 c.precision.compute,
                                 "\": activations are converted around every product with a 4-bit weight"));
  if (published) {
    if (c.quant.base)
      fail(str("quant.base = \"", *c.quant.base, "\", but ", c.init_from,
               " already has 4-bit weights: remove it"));
    for (auto& [path, format] : quantized) {
      check(!is_inside(path, c.lora.save_modules), "lora.save_modules: ", path, " is quantized in ",
            c.init_from, " and cannot be trained in full");
      format.compute = compute_dtype(c.quant);
    }
    return;
  }
  Arena planning("model", Device::cpu());
  QuantizedChoice choice = choose_quantized(c.quant, c.lora, Model(setup.model, planning));
  quantized = std::move(choice.weights);
  for (std::string& warning : choice.warnings) setup.warnings.push_back(std::move(warning));
}

// Decides which layers of setup.model have adapters.
void set_adapters(RunSetup& setup) {
  const Config& c = setup.config;
  if (c.lora.rank == 0) {
    check(c.lora.save_modules.empty(),
          "lora.save_modules has no effect without lora.rank: set a rank, or name "
          "the parameters to train in model.trainable");
    return;
  }
  check(c.trainable == std::vector<std::string>{"*"},
        "model.trainable selects parameters of full fine-tuning; with adapters, name the modules to train in "
        "full in lora.save_modules");
  Arena planning("model", Device::cpu());
  AdapterChoice choice = choose_adapters(c.lora, Model(setup.model, planning));
  setup.model.adapters = std::move(choice.adapters);
  for (std::string& warning : choice.warnings) setup.warnings.push_back(std::move(warning));
}

// Groups the parameters into units, and divides the model over the pipeline stages, which must not share any.
void divide_model(RunSetup& setup, Problems& problems) {
  Arena planning("model", Device::cpu());
  std::optional<Model> grouped;
  if (!problems.attempt([&] { grouped = grouped_model(setup, planning); })) return;
  const Model& model = *grouped;
  const bool wrapped =
      problems.attempt([&] { setup.units_of_model = std::make_shared<const Wrapping>(model, setup.wrap); });
  const bool divided = problems.attempt([&] {
    setup.pipeline = pipeline_of(setup.config.parallel, model, setup.seq_len(), setup.batching.micro_steps);
  });
  if (!divided || setup.pipeline.stages == 1) return;
  if (wrapped)
    problems.attempt([&] {
      setup.units_of_model->check_divided([&](int layer) { return setup.pipeline.stage_of(layer); });
    });
  problems.check(
      setup.transport != Transport::staged, "parallel.stages = ", setup.pipeline.stages,
      " on GPUs needs NCCL: each rank must have its own GPU, and parallel.transport must be \"auto\" "
      "or \"nccl\"");
  // The chunk of a tied embedding keeps nothing, so it cannot hold the layers before it.
  problems.check(!setup.pipeline.embeds_apart || !model.config().vision,
                 "parallel.stages = ", setup.pipeline.stages,
                 " does not support models that read images with tied embeddings: set it to 1");
  // The head and the embedding share a gradient, and later micro-batches reach the head before earlier ones
  // reach the embedding.
  problems.check(!setup.pipeline.embeds_apart || setup.batching.lane_steps == 1,
                 "train.lane_size = ", setup.config.train.lane_size,
                 " spans several micro-batches, which parallel.stages = ", setup.pipeline.stages,
                 " does not support with tied embeddings: set it to ",
                 setup.config.train.batch_size_per_device);
}

// `has_nccl`: whether this build has NCCL; a plan for unknown hosts assumes that their build has it.
Transport transport_of(TransportChoice choice, Device device, int ranks, const std::string& shared_gpu,
                       bool has_nccl) {
  if (!device.is_cuda()) {
    check(choice != TransportChoice::nccl,
          "parallel.transport = \"nccl\" needs GPUs, but the run is on the CPU: use \"auto\" or \"mpi\"");
    return Transport::host;
  }
  const bool own_gpus = shared_gpu.empty();
  if (choice == TransportChoice::mpi ||
      (choice == TransportChoice::automatic && !(has_nccl && own_gpus && ranks > 1)))
    return Transport::staged;
  check(has_nccl, "parallel.transport = \"nccl\", but this build has no NCCL: use \"auto\" or \"mpi\"");
  // Processes with different NCCL_HOSTID count as different hosts to NCCL, which then lets them share a GPU.
  check(own_gpus || std::getenv("NCCL_HOSTID"), "parallel.transport = \"nccl\", but ", shared_gpu,
        ": use \"mpi\", or, for a test, start each rank with its own NCCL_HOSTID");
  return Transport::nccl;
}

// Contradictions between keys that are each valid alone.
void check_together(const Config& c, Problems& problems) {
  problems.check(!c.run.dir.empty(), "run.dir is empty, must name a folder");
  problems.check(c.data.seq_len > 0, "data.seq_len is ", c.data.seq_len, ", must be positive");
  problems.attempt([&] { check_data_files("data.train", c.data.train); });
  problems.attempt([&] { check_data_files("data.eval", c.data.eval); });
  if (!c.data.date.empty()) problems.attempt([&] { check_date("data.date", c.data.date); });
  const size_t files = named_files(c.data.train).size();
  problems.check(c.data.weights.empty() || c.data.weights.size() == files, "data.weights has ",
                 counted(std::ssize(c.data.weights), "number"), ", but data.train names ",
                 counted(static_cast<int64_t>(files), "file"), ": give one for each");
  problems.check(c.optimizer.lr > 0, "optimizer.lr is ", c.optimizer.lr, ", must be positive");
  problems.check(c.run.resume != "auto" || c.checkpoint.on_sigterm,
                 "run.resume = \"auto\" resumes a run that a signal has stopped, but checkpoint.on_sigterm = "
                 "false saves no checkpoint then: leave it out");
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
  problems.check(!c.precision.tf32 || c.precision.compute == Precision::fp32,
                 "precision.tf32 = true applies to fp32 matrix products, but precision.compute is \"",
                 c.precision.compute, "\": remove one of them");
  problems.check(c.optimizer.grad_clip == 0 || c.optimizer.grad_clip >= kLeastFloat,
                 "optimizer.grad_clip is ", c.optimizer.grad_clip, ", must be 0 (no clipping) or at least ",
                 kLeastFloat);
  if (c.train.steps > 0) problems.attempt([&] { check_schedule(c.schedule, c.train.steps); });
  constexpr double kLeastGbps = 1e-3;
  const double gbps = c.parallel.bandwidth_gbps;
  problems.check(gbps == 0 || gbps >= kLeastGbps, "parallel.bandwidth_gbps is ", gbps,
                 ", must be 0 (measure) or at least ", kLeastGbps);
  problems.check(
      !c.train.skip_nonfinite || c.precision.compute != Precision::fp16 ||
          c.precision.loss_scale != "dynamic",
      "train.skip_nonfinite = true has no effect with a dynamic loss scale, which skips such steps anyway: "
      "set it to false");
}

UnitOptions unit_options(const Config& c, const Batching& batching, Problems& problems) {
  const ParallelConfig& p = c.parallel;
  UnitOptions options{.policy = shard_policy(p.strategy),
                      .reduction = p.reduction,
                      .compute = dtype_in(c.precision.compute),
                      .wire = dtype_in(c.precision.reduce),
                      .lanes = static_cast<int>(batching.lanes),
                      .micro_steps = batching.micro_steps,
                      .lane_steps = batching.lane_steps,
                      .gather_slots = static_cast<int>(p.depth) + 1,
                      .keep_root = p.keep_root_gathered};
  options.offload = p.offload;
  options.optimizer = c.optimizer.kind.row;
  // Offloaded state is in host memory anyway; short shards are not worth a copy.
  constexpr int64_t kWorthPaging = 100000;
  if (c.optimizer.kind.paged && !p.offload) options.page_state_from = kWorthPaging;
  options.sync_initial_values = p.sync_module_states || p.cpu_ram_efficient_loading;
  problems.check(
      !p.offload || options.policy.params,
      "parallel.offload needs sharded parameters: set parallel.strategy to \"full_shard\" or \"hybrid\", "
      "not \"",
      p.strategy, '"');
  problems.check(!p.offload || p.accumulation == Accumulation::sharded,
                 "parallel.accumulation = \"no_sync\" keeps unsharded gradients on the device, which "
                 "parallel.offload does not support: remove one of them");
  problems.check(
      !p.offload || p.replicate.empty(),
      "parallel.replicate keeps unsharded parameters on the device, which parallel.offload does not "
      "support: remove one of them");
  if (p.accumulation == Accumulation::no_sync) options.policy.grads = false;
  problems.check(options.wire == DType::f32 || batching.lanes == 1, "precision.reduce = \"",
                 c.precision.reduce,
                 "\" needs one lane per micro-batch: set train.lane_size = ", c.train.batch_size_per_device,
                 " or remove it");
  problems.check(options.wire == DType::f32 || options.reduction != Reduction::native,
                 "precision.reduce = \"", c.precision.reduce,
                 "\" needs parallel.reduction = \"exact\" or \"sequential\": \"native\" sums fp32");
  return options;
}

// The ranks of each pipeline stage.
int ranks_per_stage(int64_t stages, int ranks) {
  if (ranks % stages == 0) return ranks / static_cast<int>(stages);
  int64_t fewer = std::min<int64_t>(stages, ranks), more = stages;
  while (ranks % fewer != 0) --fewer;
  while (more <= ranks && ranks % more != 0) ++more;
  fail(str("parallel.stages = ", stages, " does not divide the ", ranks, " ranks of the run: use ", fewer,
           more <= ranks ? str(" or ", more) : "", ", or ", (ranks / stages + 1) * stages, " ranks"));
}

// CUDA graphs capture no communication, no host work and no changing shapes.
void check_graphs(const RunSetup& s, Problems& problems) {
  // Each graph takes device memory, and with more micro-steps than this the launch overhead hardly matters.
  constexpr int64_t kMostGraphs = 64;
  if (!s.uses_graphs()) return;
  problems.check(!s.model.vision,
                 "run.cuda_graphs = true does not support models that read images, whose "
                 "numbers of rows change: set it to false");
  problems.check(s.ranks() == 1, "run.cuda_graphs = true supports one rank, but the run has ", s.ranks(),
                 ": set it to false");
  problems.check(
      !s.config.parallel.offload,
      "run.cuda_graphs = true cannot capture the sums that parallel.offload computes on the host: remove "
      "one of them");
  problems.check(s.config.lora.rank == 0 || s.config.lora.dropout == 0,
                 "run.cuda_graphs = true would replay the masks of lora.dropout = ", s.config.lora.dropout,
                 " unchanged in every step: remove one of them");
  problems.check(!s.mask_documents(),
                 "run.cuda_graphs = true needs micro-steps of the same shape, but with data.packing = \"",
                 s.config.data.packing,
                 "\" the number of documents varies: set it to false, or set data.packing = \"wrapped\"");
  problems.check(s.batching.micro_steps <= kMostGraphs,
                 "run.cuda_graphs = true keeps one graph per micro-step: ", s.batching.micro_steps,
                 " micro-steps, must be at most ", kMostGraphs,
                 ": raise train.batch_size_per_device, or set it to false");
}

// Keys that only other losses read, and data that losses of answers cannot have.
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

// Sizes that are each in bounds but too large together.
void check_sizes(const RunSetup& s, Problems& problems) {
  problems.check(s.config.log.sample_length <= s.model.max_positions,
                 "log.sample_length = ", s.config.log.sample_length,
                 " is longer than model.max_positions = ", s.model.max_positions);
  if (s.seq_len() == 0) return;
  const auto check_tokens = [&](const char* key, int64_t sequences) {
    problems.check(sequences <= INT32_MAX / s.seq_len(), "data.seq_len = ", s.seq_len(), " times train.", key,
                   " = ", sequences, " is ", s.seq_len() * sequences, " tokens, must be at most ", INT32_MAX);
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

// The coefficients of an update are fp32 (kernels/adamw.h); AdamW's first update has the largest ones.
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

// The ranks of a host in a plan for GPUs whose hosts are not known.
constexpr int kGpusOfHost = 8;

void set_hosts(RunSetup& setup, const HostPlace& place) {
  const ParallelConfig& parallel = setup.config.parallel;
  const int ranks = setup.ranks();
  const bool unknown = place.hosts.empty();
  setup.hosts = place.hosts;
  if (unknown || parallel.host_ranks > 0) {
    const int64_t of_host = parallel.host_ranks > 0  ? parallel.host_ranks
                            : setup.device.is_cuda() ? kGpusOfHost
                                                     : ranks;
    setup.hosts.clear();
    for (int64_t rank = 0; rank < ranks; ++rank) setup.hosts.push_back(static_cast<int>(rank / of_host));
  }
  if (parallel.levels != LevelChoice::two) return;
  check(parallel.reduction != Reduction::native,
        "parallel.levels = \"two\" is for exact sums; parallel.reduction = \"native\" leaves them to the "
        "communication library, in one level");
  const std::string reason = setup.why_one_level();
  check(reason.empty(), "parallel.levels = \"two\", but ", reason);
  check(setup.uses_two_levels(),
        "parallel.levels = \"two\", but every group of ranks is on one host or has one rank on each");
}

}  // namespace

std::vector<int> RunSetup::group_of(int rank) const {
  const int first = rank - groups.index_in_group(data_rank(rank));
  std::vector<int> members;
  for (int i = 0; i < groups.size; ++i) members.push_back(first + i);
  return members;
}

std::vector<int> RunSetup::replicas_of(int rank) const {
  const int first = rank - groups.group_of(data_rank(rank)) * groups.size;
  std::vector<int> members;
  for (int i = 0; i < groups.count(); ++i) members.push_back(first + i * groups.size);
  return members;
}

std::vector<int> RunSetup::hosts_of(const std::vector<int>& members) const {
  std::vector<int> found;
  for (const int rank : members) found.push_back(hosts[static_cast<size_t>(rank)]);
  return found;
}

bool RunSetup::spans_hosts() const {
  return std::any_of(hosts.begin(), hosts.end(), [&](int host) { return host != hosts.front(); });
}

bool RunSetup::may_use_two_levels() const {
  return config.parallel.levels != LevelChoice::one && units.reduction != Reduction::native;
}

RankLevels RunSetup::levels_of(int rank) const {
  const int data = data_rank(rank);
  const bool two = may_use_two_levels();
  return {.group = flatshard::levels_of(hosts_of(group_of(rank)), groups.index_in_group(data), two),
          .replicas = flatshard::levels_of(hosts_of(replicas_of(rank)), groups.group_of(data), two)};
}

bool RunSetup::any_group(const std::function<bool(const std::vector<int>& members)>& holds) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (groups.index_in_group(data_rank(rank)) == 0 && holds(group_of(rank))) return true;
    if (groups.group_of(data_rank(rank)) == 0 && holds(replicas_of(rank))) return true;
  }
  return false;
}

bool RunSetup::uses_two_levels() const {
  return may_use_two_levels() && spans_hosts() && any_group([&](const std::vector<int>& members) {
           return flatshard::levels_of(hosts_of(members), 0, true).two();
         });
}

std::string RunSetup::why_one_level() const {
  std::string why;
  any_group([&](const std::vector<int>& members) {
    const std::vector<int> on = hosts_of(members);
    if (!gain_from_two_levels(on)) return false;
    const std::string reason = flatshard::why_one_level(on);
    if (!reason.empty()) why = str("of the ranks ", ranges(members), ' ', reason);
    return !reason.empty();
  });
  return why;
}

RowCounts RunSetup::most_rows(int64_t sequences) const {
  RowCounts rows{.tokens = sequences * seq_len()};
  if (!model.vision) return rows;
  const int64_t bound = most_patches(*model.vision, seq_len());
  const RowCounts each = with_most_images(*model.vision, seq_len(), max_patches > 0 ? max_patches : bound);
  rows.patches = sequences * each.patches;
  rows.frames = sequences * each.frames;
  rows.windows = sequences * each.windows;
  return rows;
}

double RunSetup::peak_lr() const {
  const OptimizerConfig& o = config.optimizer;
  if (o.lr_scaling == LrScaling::none) return o.lr;
  const double k = static_cast<double>(batching.total_sequences) / static_cast<double>(o.base_batch_size);
  return o.lr * (o.lr_scaling == LrScaling::sqrt ? std::sqrt(k) : k);
}

namespace {

// data.max_patches, or the patches of the largest image that the files of the model's folder allow.
int64_t max_patches_of(const Config& config, const ModelConfig& model) {
  if (!model.vision || config.data.max_patches > 0) return config.data.max_patches;
  const std::string folder = tokenizer_folder(config);
  if (folder.empty()) return 0;
  const std::optional<ImageInput> input = read_image_input(folder, config.data.image_longest_edge);
  return input ? most_patches(input->rules) : 0;
}

}  // namespace

RunSetup set_up(const Config& config, int ranks, HostPlace place, Purpose purpose) {
  Problems problems;
  check_together(config, problems);
  RunSetup setup{
      .config = config,
      .model = {},
      .batching = {.total_sequences = 1, .lane_sequences = 1, .ranks = ranks, .lanes = 1, .micro_steps = 1},
      .compute = {},
      .units = {},
      .wrap = {.policy = config.parallel.wrap,
               .patterns = config.parallel.wrap_patterns,
               .size = config.parallel.wrap_size,
               .replicate = config.parallel.replicate},
      .groups = {},
      .hosts = {},
      .device = Device::cpu(),
      .device_is_here = true,
      .transport = Transport::host,
      .eval_sequences = config.train.eval_batch_size_per_device,
      .shard_bytes = 0,
      .trace = {}};
  setup.config.run.dir = plain_path(config.run.dir);
  if (setup.eval_sequences == 0) setup.eval_sequences = config.train.batch_size_per_device;
  int in_stage = ranks;
  const bool batched = problems.attempt([&] { in_stage = ranks_per_stage(config.parallel.stages, ranks); }) &&
                       problems.attempt([&] {
                         setup.batching = batching_of(config.train, lane_size_of(config, ranks), in_stage);
                       });
  setup.units = unit_options(config, setup.batching, problems);
  setup.compute = setup.units.compute;
  problems.attempt([&] {
    setup.groups = groups_of(setup.units.policy, in_stage, static_cast<int>(config.parallel.group_size));
  });
  problems.attempt(
      [&] { setup.shard_bytes = parse_bytes("checkpoint.shard_size", config.checkpoint.shard_size); });
  problems.attempt([&] { setup.trace = parse_trace_steps(config.run.trace); });
  if (!named_files(config.data.eval).empty() && config.train.eval_every == 0 && !config.train.eval_each_epoch)
    setup.warnings.push_back(
        "data.eval is not used: train.eval_every = 0 and train.eval_each_epoch = false evaluate nothing");
  const bool placed = problems.attempt([&] {
    const bool plans = purpose == Purpose::plan;
    setup.device = plans ? planned_device(config.run.device, place.gpu.index, place.rank)
                         : choose_device("run.device", config.run.device, place.gpu.index);
    setup.device_is_here = !setup.device.is_cuda() || why_no_gpu().empty();
    setup.transport = transport_of(config.parallel.transport, setup.device, ranks, place.gpu.shared,
                                   kNcclBuilt || (plans && place.hosts.empty()));
  });
  const bool modeled = problems.attempt([&] { setup.model = model_of(config); });
  if (modeled) problems.attempt([&] { setup.max_patches = max_patches_of(config, setup.model); });
  if (modeled) problems.attempt([&] { set_quantized(setup); });
  if (modeled) problems.attempt([&] { set_adapters(setup); });
  if (modeled && batched) divide_model(setup, problems);
  if (modeled && batched) check_sizes(setup, problems);
  if (modeled) check_loss(setup, problems);
  if (batched) check_learning_rate(setup, problems);
  if (batched && placed) check_graphs(setup, problems);
  if (modeled && batched && placed) problems.attempt([&] { set_hosts(setup, place); });
  problems.raise();
  return setup;
}

Model grouped_model(const RunSetup& setup, Arena& tables) {
  Model model(setup.model, tables, layer_cut(setup.wrap), setup.longest_text());
  const std::vector<std::string>& no_decay = setup.config.optimizer.no_decay;
  if (setup.has_adapters())
    apply_adapter_groups(model, setup.config.lora.save_modules, no_decay);
  else
    apply_groups(model, setup.config.trainable, no_decay);
  return model;
}

HostPlace place_of(World& world) {
  const std::vector<std::string>& names = world.hosts();
  std::vector<int> hosts;
  for (const std::string& name : names)
    hosts.push_back(static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin()));
  return {.rank = world.local_rank(),
          .ranks = world.local_size(),
          .gpu = place_on_gpu(world),
          .hosts = std::move(hosts)};
}

RunSetup set_up(const Config& config, World& world, Purpose purpose) {
  return set_up(config, world.size(), place_of(world), purpose);
}

Config resolved_config(const RunSetup& setup, int threads) {
  Config c = setup.config;
  const int64_t vocab = c.model.vocab;  // the vocabulary before padding
  c.model = setup.model;
  c.model.vocab = vocab;
  c.run.device = setup.device.is_cuda() ? DeviceChoice::cuda : DeviceChoice::cpu;
  c.run.threads = threads;
  c.train.lane_size = setup.batching.lane_size();
  c.train.eval_batch_size_per_device = setup.eval_sequences;
  c.parallel.transport = setup.transport == Transport::nccl ? TransportChoice::nccl : TransportChoice::mpi;
  if (c.data.tokenizer.empty()) c.data.tokenizer = c.init_from;
  if (!setup.model.quantized.empty() && !c.quant.compute) c.quant.compute = c.precision.compute;
  return c;
}

void use_threads(const RunConfig& run, const World& world) {
  set_thread_count(run.threads > 0 ? static_cast<int>(run.threads) : threads_for(world));
}

}  // namespace flatshard
