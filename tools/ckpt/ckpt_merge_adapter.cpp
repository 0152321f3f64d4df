#include <cmath>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "checkpoint/float_values.h"
#include "hub/adapter_base.h"
#include "model/names.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"

namespace flatshard {
namespace {

// The adapter's tokenizer files, if it has any. If they lack a generation config, the base's is used.
TokenizerFiles adapted_tokenizer_files(const ModelSource& source) {
  constexpr const char kGeneration[] = "generation_config.json";
  TokenizerFiles own = read_tokenizer_files(tokenizer_folder(source)),
                 base = read_tokenizer_files(source.folder);
  if (base.contains(kGeneration)) own.try_emplace(kGeneration, base[kGeneration]);
  return own;
}

// The differences between 4-bit weights and their unquantized values, and the adapter's updates.
struct RequantizationError {
  double differences = 0, values = 0, updates = 0;  // sums of squares
  int64_t weights = 0;

  double relative() const { return values > 0 ? std::sqrt(differences / values) : 0; }
  double of_updates() const { return updates > 0 ? std::sqrt(differences / updates) : 0; }
};

RequantizationError error_of(PublishedWeights& written, PublishedWeights& base, const ReadValues& merged,
                             const AdapterFolder& adapter) {
  RequantizationError error;
  std::vector<float> made, stored, before;
  for (const auto& [name, weight] : written.quantized().weights()) {
    if (!adapter.adapts(name)) continue;
    ++error.weights;
    for (int64_t first = 0; first < weight.elements(); first += kValueBlock) {
      const int64_t count = std::min(kValueBlock, weight.elements() - first);
      made.resize(static_cast<size_t>(count));
      stored.resize(made.size());
      before.resize(made.size());
      merged(name, first, count, made.data());
      written.read(name, first, count, stored.data());
      base.read(name, first, count, before.data());
      for (size_t i = 0; i < made.size(); ++i) {
        const double value = static_cast<double>(made[i]),
                     difference = static_cast<double>(stored[i]) - value,
                     update = value - static_cast<double>(before[i]);
        error.differences += difference * difference;
        error.updates += update * update;
        error.values += value * value;
      }
    }
  }
  return error;
}

std::string percent_of(double share) {
  std::ostringstream out;
  out << std::setprecision(3) << 100 * share << '%';
  return std::move(out).str();
}

// The tensors of the base with the adapter, in order: replaced, merged or unchanged.
OutputTensors adapted_outputs(const TensorSets& base, PublishedWeights& weights, AdapterFolder& adapter,
                              const ReadValues& merged, const std::optional<DType>& dtype,
                              QuantizingSource* requantize) {
  OutputTensors outputs;
  const QuantizedTensors& quantized = weights.quantized();
  const TensorEntries entries = base.is_gguf() ? TensorEntries{} : base.sets().front().entries;
  for (OutputTensor& output : outputs_of(base, dtype, &weights)) {
    const std::string name = output.spec.name;
    const bool keeps_format = requantize && quantized.weights().contains(name);
    if (adapter.has(name)) {
      outputs.push_back(float_output(name, adapter.entry(name), output.spec.dtype));
    } else if (keeps_format && adapter.adapts(name)) {
      const std::optional<DType> storage = float_dtype(*entries.at(name));
      for (OutputTensor& part :
           quantized_outputs(*requantize, name, quantized.state(name).dtype, storage.value_or(DType::u8)))
        outputs.push_back(std::move(part));
    } else if (keeps_format) {
      for (const std::string& part : quantized.names_of(name))
        outputs.push_back(copied_output(part, *entries.at(part)));
    } else {
      outputs.push_back(adapter.adapts(name) ? values_output(output.spec, merged) : std::move(output));
    }
  }
  return outputs;
}

// Rounding by more than this share of the adapter's update is refused.
constexpr double kMostRounding = 0.5;

void report_rounding(const RequantizationError& error, bool forced, const Console& console) {
  const double share = error.of_updates();
  const std::string found =
      str("--requantize rounds ", counted(error.weights, "weight"), " with the adapter to 4 bits again, by ",
          percent_of(share), " of what the adapter adds (root mean square; ", percent_of(error.relative()),
          " of the weights)");
  if (share <= kMostRounding) {
    console.out << found << ": compare the loss before and after\n";
    return;
  }
  check(forced, found,
        ": most of the training is lost; merge without --requantize, use base and adapter unmerged, or give "
        "--force");
  console.out << "warning: " << found << ": most of the training is lost\n";
}

void announce(const ModelSource& source, bool is_quantized, const Console& console) {
  for (const std::string& note : source.notes) console.out << note << '\n';
  const std::optional<AdapterBase> trained = read_adapter_base(source.adapter);
  if (trained && trained->quant.base && !is_quantized)
    console.out << "warning: the adapter was trained on weights rounded to " << *trained->quant.base
                << ", and is merged into those of " << source.folder
                << " as they are: the loss will differ from training's\n";
}

}  // namespace

void merge_adapter(const ModelSource& source, const Requantization& requantization,
                   const ExportOptions& options, const Console& console) {
  const bool requantize = requantization.wanted;
  const TensorSets base(source.folder);
  check_whole(base);
  check(!base.has_adapters(), source.folder, ": is an adapter, must be a model folder");
  const std::unique_ptr<PublishedWeights> weights = weights_of(base);
  const bool is_quantized = !weights->quantized().empty();
  check(is_quantized || !requantize, source.folder,
        ": has no 4-bit weights to requantize; merge without --requantize, then run ckpt quantize");
  announce(source, is_quantized, console);
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  const Model model(base.config(), tables);
  AdapterFolder adapter(source.adapter, model);
  for (const std::string& warning : adapter.warnings()) console.out << "warning: " << warning << '\n';
  const ReadValues merged = [&](const std::string& name, int64_t first, int64_t count, float* to) {
    weights->read(name, first, count, to);
    adapter.merge(name, first, count, to);
  };
  QuantizingSource requantized(merged, weights->quantized().weights(),
                               param_names(base.config().family).transposed_weights);
  NewFolder folder(options.to);
  ModelOutput output{.tensors = adapted_outputs(base, *weights, adapter, merged, options.dtype,
                                                requantize ? &requantized : nullptr),
                     .tokenizer_files = adapted_tokenizer_files(source)};
  if (adapter.vocab() != base.config().vocab) output.changes.vocab = adapter.vocab();
  if (is_quantized && !requantize) output.changes.quantization = "";
  if (requantize)
    output.before_end = [&] {
      PublishedWeights written(folder.unfinished(), model, adapter.vocab());
      report_rounding(error_of(written, *weights, merged, adapter), requantization.forced, console);
    };
  write_model(folder, base, output, options, console);
}

}  // namespace flatshard
