#include <cmath>
#include <ostream>

#include "hub/adapter_base.h"
#include "hub/adapter_folder.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "tools/ckpt/model_output.h"
#include "train/report/metrics.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The base's tensors, replaced by those of the checkpoint where it has them.
OutputTensors merged_outputs(const TensorSets& base, PublishedWeights* weights, const TensorSets& checkpoint,
                             const std::optional<DType>& dtype) {
  OutputTensors outputs = outputs_of(base, dtype, weights);
  TensorEntries rest = checkpoint.sets().front().entries;
  for (OutputTensor& output : outputs) {
    const auto found = rest.find(output.spec.name);
    if (found == rest.end()) continue;
    check(found->second->shape == output.spec.shape, checkpoint.weights().path(), ": ",
          printable(output.spec.name), " differs in shape from that in ", base.weights().path(),
          "; omit --base if the run extended the vocabulary");
    output = float_output(output.spec.name, *found->second, output.spec.dtype);
    rest.erase(found);
  }
  check(rest.empty(), base.weights().path(), ": ", rest.empty() ? "" : printable(rest.begin()->first),
        " is missing; ", checkpoint.path(),
        " has it; check that --base is the model that the run started from");
  return outputs;
}

TrainState state_to_compare(const fs::path& checkpoint) {
  try {
    return read_train_state((checkpoint / TrainState::kFileName).string());
  } catch (const Error& error) {
    throw Error(str(error.what(), "; it may be the best checkpoint: remove ", checkpoint.string(),
                    ", or export a checkpoint by its path"),
                error.where);
  }
}

// The lowest evaluation loss in the metrics of a run, if that is below `saved`; nothing if there are none, as
// in a copy of the checkpoints alone.
std::optional<StepMetrics> lower_evaluation(const std::string& run, double saved) {
  const fs::path metrics = fs::path(run) / "metrics.jsonl";
  if (!fs::exists(metrics)) return {};
  std::optional<StepMetrics> lowest;
  for (const StepMetrics& m : read_latest_metrics(metrics.string()))
    if (m.eval_loss && *m.eval_loss < (lowest ? *lowest->eval_loss : saved)) lowest = m;
  return lowest;
}

std::string describe_unsaved(const std::optional<StepMetrics>& m) {
  if (!m) return "";
  return str("; step ", m->step, " had ", *m->eval_loss, ", which was not saved (checkpoint.best_every)");
}

}  // namespace

BestCheckpoint best_of(const std::string& run) {
  check(fs::is_directory(run), run, ": no such folder");
  const std::vector<int64_t> steps = steps_in(run);
  check(!steps.empty(), run, ": has no checkpoint");
  std::optional<BestCheckpoint> best;
  for (const int64_t step : steps) {
    const fs::path path = fs::path(run) / name_of_step(step);
    const TrainState state = state_to_compare(path);
    if (state.eval_loss && std::isfinite(*state.eval_loss) && (!best || *state.eval_loss < best->loss))
      best = {.path = path.string(), .step = step, .loss = *state.eval_loss};
  }
  check(best.has_value(), run, ": none of its ", counted(std::ssize(steps), "checkpoint"),
        " has an evaluation loss", describe_unsaved(lower_evaluation(run, HUGE_VAL)),
        "; set data.eval and train.eval_every, or export a checkpoint by its path");
  return *best;
}

void print_best(const std::string& run, const Console& console) {
  const BestCheckpoint best = best_of(run);
  console.out << best.path << "  evaluation loss " << best.loss
              << describe_unsaved(lower_evaluation(run, best.loss)) << '\n';
}

void export_model(const std::string& from, const ExportOptions& options, const Console& console) {
  const TensorSets source(from);
  check_whole(source);
  NewFolder folder(options.to);
  HfConfigChanges changes{.weights = options.dtype};
  std::unique_ptr<PublishedWeights> weights;
  if (options.dtype && !source.has_adapters()) {
    weights = four_bit_weights_of(source);
    if (weights) changes.quantization = "";
  }
  const int64_t bytes =
      write_tensors(folder, source.has_adapters() ? kAdapterStem : kWeightsStem,
                    outputs_of(source, options.dtype, weights.get()), options.shard_bytes, console);
  for (const char* name : {kAdapterConfigName, kAdapterBaseName})
    if (const fs::path file = source.folder() / name; source.has_adapters() && fs::exists(file))
      folder.write(name, read_whole_file(file.string(), kMostHfConfigBytes));
  write_documents(folder, source.folder(), changes, read_tokenizer_files(source.path()));
  finish(folder, bytes, options, console);
}

void merge(const std::string& run, const std::optional<std::string>& base, bool other_base,
           const ExportOptions& options, const Console& console) {
  const BestCheckpoint best = best_of(run);
  console.out << best.path << ": evaluation loss " << best.loss << ", the lowest of " << steps_in(run).size()
              << " checkpoints\n";
  check(verify(best.path, console), best.path, ": is damaged and cannot be merged");
  if (fs::exists(fs::path(best.path) / kAdapterConfigName))
    return merge_adapter(find_model(base.value_or(""), best.path, {.other = other_base, .as_stored = true}),
                         {}, options, console);
  if (!base) return export_model(best.path, options, console);
  const TensorSets checkpoint(best.path), onto(*base);
  check(!onto.state(), *base, ": is a checkpoint, must be a model folder");
  NewFolder folder(options.to);
  const std::unique_ptr<PublishedWeights> weights = four_bit_weights_of(onto);
  HfConfigChanges changes{.weights = options.dtype};
  if (weights) changes.quantization = "";
  const int64_t bytes =
      write_tensors(folder, kWeightsStem, merged_outputs(onto, weights.get(), checkpoint, options.dtype),
                    options.shard_bytes, console);
  write_documents(folder, onto.folder(), changes, read_tokenizer_files(onto.path()));
  finish(folder, bytes, options, console);
}

}  // namespace flatshard
