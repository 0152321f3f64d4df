#include "train/setup/run_setup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "build_config.h"
#include "hub/expert_tensors.h"
#include "model/image_rows.h"
#include "model/param_selection.h"
#include "runtime/check.h"
#include "runtime/parallel.h"
#include "runtime/problems.h"
#include "runtime/text.h"
#include "text/images/image_input.h"
#include "train/setup/contradictions.h"
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
  if (const std::string lost = layer_lost_in_peft(setup.model.adapters, setup.model.family); !lost.empty())
    setup.warnings.push_back(
        str("lora.targets: PEFT 0.21 on transformers 5 takes ", lost,
            " for a layer of experts, and does not open its adapter: leave out MLPs beside "
            "experts, or merge the adapter"));
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

// The ranks of a host in a plan for GPUs whose hosts are not known.
constexpr int kGpusOfHost = 8;

void set_hosts(RunSetup& setup, const HostPlace& place) {
  const ParallelConfig& parallel = setup.config.parallel;
  const int ranks = setup.ranks();
  const bool unknown = place.hosts.empty();
  setup.may_use_two_levels =
      parallel.levels != LevelChoice::one && setup.units.reduction != Reduction::native;
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

// Divides the batch over the ranks, and groups the ranks of a stage. Returns whether the batch divides.
bool set_batch(RunSetup& setup, int ranks, Problems& problems) {
  const Config& c = setup.config;
  const TrainConfig& train = c.train;
  setup.eval_sequences =
      train.eval_batch_size_per_device > 0 ? train.eval_batch_size_per_device : train.batch_size_per_device;
  setup.batching = {.total_sequences = 1, .lane_sequences = 1, .ranks = ranks, .lanes = 1, .micro_steps = 1};
  int in_stage = ranks;
  const bool batched = problems.attempt([&] {
    in_stage = ranks_per_stage(c.parallel.stages, ranks);
  }) && problems.attempt([&] { setup.batching = batching_of(train, lane_size_of(c, ranks), in_stage); });
  setup.units = unit_options(c, setup.batching, problems);
  setup.compute = setup.units.compute;
  problems.attempt([&] {
    setup.groups = groups_of(setup.units.policy, in_stage, static_cast<int>(c.parallel.group_size));
  });
  return batched;
}

void set_files(RunSetup& setup, Problems& problems) {
  const Config& c = setup.config;
  setup.config.run.dir = plain_path(c.run.dir);
  problems.attempt(
      [&] { setup.shard_bytes = parse_bytes("checkpoint.shard_size", c.checkpoint.shard_size); });
  problems.attempt([&] { setup.trace = parse_trace_steps(c.run.trace); });
  if (c.run.balanced_routing)
    setup.warnings.push_back(
        "run.balanced_routing = true: training steps assign tokens to experts in turn; the resulting weights "
        "are useless");
  if (!named_files(c.data.eval).empty() && c.train.eval_every == 0 && !c.train.eval_each_epoch)
    setup.warnings.push_back(
        "data.eval is not used: train.eval_every = 0 and train.eval_each_epoch = false evaluate nothing");
}

void set_device(RunSetup& setup, int ranks, const HostPlace& place, Purpose purpose) {
  const Config& c = setup.config;
  const bool plans = purpose == Purpose::plan;
  setup.device = plans ? planned_device(c.run.device, place.gpu.index, place.rank)
                       : choose_device("run.device", c.run.device, place.gpu.index);
  setup.device_is_here = !setup.device.is_cuda() || why_no_gpu().empty();
  setup.transport = transport_of(c.parallel.transport, setup.device, ranks, place.gpu.shared,
                                 kNcclBuilt || (plans && place.hosts.empty()));
}

// Returns whether the model itself is valid, apart from its adapters and 4-bit weights.
bool set_model(RunSetup& setup, Problems& problems) {
  if (!problems.attempt([&] { setup.model = model_of(setup.config); })) return false;
  problems.attempt([&] { setup.max_patches = max_patches_of(setup.config, setup.model); });
  problems.attempt([&] { set_quantized(setup); });
  problems.attempt([&] { set_adapters(setup); });
  return true;
}

}  // namespace

RunSetup set_up(const Config& config, int ranks, HostPlace place, Purpose purpose) {
  Problems problems;
  check_together(config, problems);
  RunSetup setup;
  setup.config = config;
  setup.wrap = {.policy = config.parallel.wrap,
                .patterns = config.parallel.wrap_patterns,
                .size = config.parallel.wrap_size,
                .replicate = config.parallel.replicate,
                .expert_ranks = static_cast<int>(config.parallel.expert_ranks)};
  setup.expert_ranks = setup.wrap.expert_ranks;
  const bool batched = set_batch(setup, ranks, problems);
  set_files(setup, problems);
  const bool placed = problems.attempt([&] { set_device(setup, ranks, place, purpose); });
  const bool modeled = set_model(setup, problems);
  if (modeled && batched) divide_model(setup, problems);
  if (modeled && batched) check_sizes(setup, problems);
  if (modeled) check_loss(setup, problems);
  if (batched) check_learning_rate(setup, problems);
  if (batched && placed) check_graphs(setup, problems);
  if (modeled && placed) check_attention(setup, problems);
  if (modeled && batched && placed) check_experts(setup, problems);
  if (modeled && batched && placed && problems.attempt([&] { set_hosts(setup, place); }))
    check_expert_ranks(setup, problems);
  problems.raise();
  return setup;
}

Model grouped_model(const RunSetup& setup, Arena& tables) {
  Model model(setup.model, tables, layer_cut(setup.wrap), setup.longest_text());
  const std::vector<std::string>& no_decay = setup.config.optimizer.no_decay;
  if (setup.has_adapters())
    select_adapter_params(model, setup.config.lora.save_modules, no_decay);
  else
    select_params(model, setup.config.trainable, no_decay);
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
  c.run.cuda_graphs = setup.uses_graphs() ? CudaGraphs::on : CudaGraphs::off;
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
