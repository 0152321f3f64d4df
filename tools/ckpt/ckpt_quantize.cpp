#include <algorithm>
#include <ostream>

#include "checkpoint/float_values.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/names.h"
#include "model/quantized_layers.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace {

LayersToQuantize choose(const Model& model, const QuantizeOptions& options) {
  LayersToQuantize layers = layers_to_quantize(model, options.skip);
  if (!layers.unmatched.empty())
    fail(str("--skip ", layers.unmatched.front(),
             ": no linear layer has this name or is in a module of this name"));
  if (!options.experts) std::erase_if(layers.paths, is_of_experts);
  check(!layers.paths.empty(), "--skip leaves no linear layer to quantize");
  return layers;
}

// Returns a reader of values rounded to `dtype`, the dtype of the weights before quantization.
ReadValues rounded(const ReadValues& read, const std::optional<DType>& dtype) {
  if (!dtype || *dtype == DType::f32) return read;
  return [=, bytes = std::vector<std::byte>()](const std::string& name, int64_t first, int64_t count,
                                               float* to) mutable {
    read(name, first, count, to);
    convert_floats({to, static_cast<size_t>(count)}, name, first, *dtype, bytes);
    visit_float(*dtype, [&]<class T>() {
      std::transform(reinterpret_cast<const T*>(bytes.data()),
                     reinterpret_cast<const T*>(bytes.data()) + count, to,
                     [](T value) { return static_cast<float>(value); });
    });
  };
}

}  // namespace

void quantize(const std::string& from, const QuantizeOptions& quantization, const ExportOptions& options,
              const Console& console) {
  const TensorSets sets(from);
  check_whole(sets);
  check(!sets.has_adapters(), from, ": is an adapter: merge it into its base with ckpt merge-adapter first");
  const std::unique_ptr<PublishedWeights> weights = weights_of(sets);
  check(weights->quantized().empty(), from,
        ": has 4-bit weights already: dequantize them with ckpt export --dtype first");
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  const Model model(sets.config(), tables);
  const LayersToQuantize layers = choose(model, quantization);
  std::map<std::string, FourBitFormat> formats;
  for (const std::string& path : layers.paths) formats[path] = quantization.format;
  const ParamNames& names = param_names(sets.config().family);
  QuantizingSource source(rounded(reader_of(*weights), options.dtype), four_bit_weights(model, formats),
                          names.transposed_weights);
  NewFolder folder(options.to);
  OutputTensors outputs;
  DType compute = DType::bf16;
  for (OutputTensor& output : outputs_of(sets, options.dtype, weights.get())) {
    if (!source.weights().contains(output.spec.name)) {
      outputs.push_back(std::move(output));
      continue;
    }
    if (output.spec.dtype == DType::f16) compute = DType::f16;
    for (OutputTensor& part :
         quantized_outputs(source, output.spec.name, output.spec.dtype, quantization.storage))
      outputs.push_back(std::move(part));
  }
  QuantizationConfig config{
      .format = quantization.format, .storage = quantization.storage, .skip_modules = layers.skipped};
  config.format.compute = compute;
  // A list replaces transformers' default, which is the head.
  if (!layers.skipped.empty()) config.skip_modules.push_back(names.head);
  const auto report = [&] {
    console.out << counted(std::ssize(layers.paths), "weight") << " in 4 bits\n";
    if (model.config().experts > 0 && !quantization.experts)
      console.out
          << "note: experts are not quantized, as transformers 5 reads none in 4 bits; --experts does\n";
  };
  write_model(folder, sets,
              {.tensors = std::move(outputs),
               .changes = {.quantization = quantization_config_json(config)},
               .tokenizer_files = read_tokenizer_files(sets.path()),
               .before_end = report},
              options, console);
}

}  // namespace flatshard
