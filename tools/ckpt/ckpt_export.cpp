#include <ostream>

#include "hub/adapter_folder.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"
#include "train/save/best_checkpoint.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The tensors of the base; tensors of the checkpoint replace those with the same name.
OutputTensors merged_outputs(const TensorSets& base, PublishedWeights* weights, const TensorSets& checkpoint,
                             const std::optional<DType>& dtype) {
  OutputTensors outputs = outputs_of(base, dtype, weights);
  TensorEntries rest = checkpoint.sets().front().entries;
  for (OutputTensor& output : outputs) {
    const auto found = rest.find(output.spec.name);
    if (found == rest.end()) continue;
    check(found->second->shape == output.spec.shape, checkpoint.weights_path(), ": ",
          printable(output.spec.name), " differs in shape from that in ", base.weights_path(),
          "; omit --base if the run extended the vocabulary");
    output = float_output(output.spec.name, *found->second, output.spec.dtype);
    rest.erase(found);
  }
  check(rest.empty(), base.weights_path(), ": ", rest.empty() ? "" : printable(rest.begin()->first),
        " is missing; ", checkpoint.path(),
        " has it; check that --base is the model that the run started from");
  return outputs;
}

}  // namespace

void print_best(const std::string& run, const Console& console) {
  const BestCheckpoint best = best_in(run);
  console.out << best.path.string() << "  evaluation loss " << best.loss << describe_unsaved(run, best.loss)
              << '\n';
}

void export_model(const std::string& from, const ExportOptions& options, const Console& console) {
  const TensorSets source(from);
  check_whole(source);
  NewFolder folder(options.to);
  std::unique_ptr<PublishedWeights> weights;
  const bool converts = options.dtype || (!source.is_gguf() && !mxfp4_in(source).empty());
  if (source.is_gguf() || (converts && !source.has_adapters())) weights = quantized_weights_of(source);
  ModelOutput model{.tensors = outputs_of(source, options.dtype, weights.get()),
                    .tokenizer_files = read_tokenizer_files(source.path())};
  if (weights) model.changes.quantization = "";
  write_model(folder, source, model, options, console);
}

void merge(const std::string& run, const std::optional<std::string>& base, bool other_base,
           const ExportOptions& options, const Console& console) {
  const std::optional<BestCheckpoint> best = find_best(run);
  const std::string path = (best ? best->path : latest_in(run)).string(),
                    checkpoints = counted(std::ssize(steps_in(run)), "checkpoint");
  if (best)
    console.out << path << ": evaluation loss " << best->loss << ", the lowest of " << checkpoints << '\n';
  else
    console.out << path << ": the latest of " << checkpoints << ", none of which has an evaluation loss\n";
  check(verify(path, console), path, ": is damaged and cannot be merged");
  if (fs::exists(fs::path(path) / kAdapterConfigName))
    return merge_adapter(find_model(base.value_or(""), path,
                                    {.other = other_base, .as_stored = true, .naming = "with --base"}),
                         {}, options, console);
  if (!base) return export_model(path, options, console);
  const TensorSets checkpoint(path), onto(*base);
  check(!onto.state(), *base, ": is a checkpoint, must be a model folder");
  NewFolder folder(options.to);
  const std::unique_ptr<PublishedWeights> weights = quantized_weights_of(onto);
  ModelOutput model{.tensors = merged_outputs(onto, weights.get(), checkpoint, options.dtype),
                    .tokenizer_files = read_tokenizer_files(onto.path())};
  if (weights) model.changes.quantization = "";
  write_model(folder, onto, model, options, console);
}

}  // namespace flatshard
