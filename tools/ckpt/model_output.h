#pragma once
// Writes model folders, block by block. A command lists the tensors in the order of the files, each with a
// function that computes its bytes.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/new_folder.h"
#include "hub/hf_config.h"
#include "hub/published_weights.h"
#include "hub/quantized/quantizing_source.h"
#include "hub/tokenizer_files.h"
#include "tools/ckpt/ckpt_commands.h"
#include "tools/ckpt/tensor_sets.h"

namespace flatshard {

struct OutputTensor {
  SafetensorsSpec spec;
  // Computes elements [first, first + count) in spec.dtype.
  std::function<void(int64_t first, int64_t count, std::vector<std::byte>& block)> read;
};
using OutputTensors = std::vector<OutputTensor>;

// A float tensor of a file, rounded to `dtype`.
OutputTensor float_output(const std::string& name, const SafetensorsEntry& entry, DType dtype);
// A tensor of a file with unchanged bytes and dtype. Throws an Error if DType lacks its dtype.
OutputTensor copied_output(const std::string& name, const SafetensorsEntry& entry);
// Values from `read`, rounded to the dtype of `spec`.
OutputTensor values_output(const SafetensorsSpec& spec, const ReadValues& read);

// The tensors of a 4-bit weight of `source`, which must outlive the result. `storage` is the declared dtype
// of the codes, `dtype` the dtype of the weight before quantization. If its scales are nested, this reads all
// of its values.
OutputTensors quantized_outputs(QuantizingSource& source, const std::string& name, DType dtype,
                                DType storage);

// Refuses a folder whose tensors do not match its config.json.
void check_whole(const TensorSets& sets);

// The values of a model's weights. The tensors must be exactly those of its config.json.
std::unique_ptr<PublishedWeights> weights_of(const TensorSets& sets);
// The values of a folder with 4-bit weights or of a GGUF file; null for other models.
std::unique_ptr<PublishedWeights> quantized_weights_of(const TensorSets& sets);
ReadValues reader_of(PublishedWeights& weights);

// All tensors of a folder in model order, followed by foreign tensors. 4-bit weights are dequantized with
// `weights`. If `weights` is null, they are copied; for a GGUF file, and for experts in MXFP4, which are
// always dequantized, it must not be null.
OutputTensors outputs_of(const TensorSets& sets, const std::optional<DType>& dtype,
                         PublishedWeights* weights);

// The contents of a new model folder.
struct ModelOutput {
  OutputTensors tensors;
  HfConfigChanges changes{};  // changes of the config.json, besides the dtype
  TokenizerFiles tokenizer_files{};
  std::function<void()> before_end{};  // called once all is written, and before the folder has its name
};
// Writes a model that is made from `from`, renames the folder to its final name, and prints a line.
void write_model(NewFolder& folder, const TensorSets& from, const ModelOutput& model,
                 const ExportOptions& options, const Console& console);
}  // namespace flatshard
