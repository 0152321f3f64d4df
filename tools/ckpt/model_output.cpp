#include "tools/ckpt/model_output.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <set>

#include "checkpoint/float_values.h"
#include "hub/adapter_base.h"
#include "hub/adapter_folder.h"
#include "model/names.h"
#include "runtime/byte_progress.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

DType dtype_of_item(const SafetensorsEntry& entry, const std::optional<DType>& wanted) {
  const std::optional<DType> own = float_dtype(entry);
  check(own.has_value(), "\"", printable(entry.name), "\" is ", entry.dtype,
        ", must be F32, BF16 or F16 to be exported");
  return wanted.value_or(*own);
}

// The tensors that files of this family have for all experts of a block, as far as their parts are not codes.
std::vector<JoinedTensor> joined_among(const OutputTensors& tensors, const ModelConfig& config) {
  std::map<std::string, const std::vector<int64_t>*> shapes;
  for (const OutputTensor& tensor : tensors) shapes[tensor.spec.name] = &tensor.spec.shape;
  std::vector<JoinedTensor> joined = written_joined(config);
  std::erase_if(joined, [&](const JoinedTensor& tensor) {
    return std::any_of(tensor.parts.begin(), tensor.parts.end(), [&](const JoinedTensor::Part& part) {
      const auto found = shapes.find(part.name);
      return found == shapes.end() || *found->second != part.shape;
    });
  });
  return joined;
}

// Writes the tensors to files of at most `shard_bytes`. Returns their total size.
int64_t write_tensors(const NewFolder& folder, const char* stem, const OutputTensors& tensors,
                      const std::vector<JoinedTensor>& joined, int64_t shard_bytes, const Console& console) {
  const auto elements = [](const OutputTensor& tensor) {
    int64_t n = 1;
    for (const int64_t extent : tensor.spec.shape) n *= extent;
    return n;
  };
  std::vector<SafetensorsSpec> specs;
  int64_t bytes = 0;
  for (const OutputTensor& tensor : tensors) {
    specs.push_back(tensor.spec);
    bytes += elements(tensor) * size_of(tensor.spec.dtype);
  }
  const TensorFolderLayout layout(stem, std::move(specs), shard_bytes, joined);
  TensorFolderWriter writer(folder.unfinished(), layout, true);
  ByteProgress progress(bytes, console.terminal);
  std::vector<std::byte> block;
  for (const OutputTensor& tensor : tensors)
    for (int64_t first = 0, n = elements(tensor); first < n; first += kValueBlock) {
      const int64_t count = std::min(kValueBlock, n - first);
      tensor.read(first, count, block);
      writer.write(tensor.spec.name, first, block.data(), count);
      progress.add(std::ssize(block));
    }
  writer.finish();
  if (!layout.index_name().empty()) folder.write(layout.index_name(), layout.index_text());
  return layout.file_bytes();
}

// The config.json of a model, with `changes`.
std::string config_with(const TensorSets& from, const HfConfigChanges& changes) {
  const std::string path = published_config_path(from.path());
  std::string config;
  if (from.is_gguf()) {
    const std::string embedding = param_names(from.config().family).embedding + ".weight";
    config = hf_config_json(from.config(), weights_of(from)->gguf_dtype(embedding));
  } else {
    config = read_whole_file(path, kMostHfConfigBytes);
  }
  return changed_hf_config(config, path, changes);
}

}  // namespace

OutputTensor float_output(const std::string& name, const SafetensorsEntry& entry, DType dtype) {
  return {.spec = {.name = name, .dtype = dtype, .shape = entry.shape},
          .read = [&entry, dtype](int64_t first, int64_t count, std::vector<std::byte>& block) {
            read_as(entry, first, count, dtype, block);
          }};
}

OutputTensor copied_output(const std::string& name, const SafetensorsEntry& entry) {
  const bool is_u8 = entry.dtype == safetensors_name(DType::u8);
  check(is_u8 || float_dtype(entry), "\"", printable(name), "\" is ", entry.dtype,
        ", must be F32, BF16, F16 or U8 to be exported");
  const DType dtype = is_u8 ? DType::u8 : *float_dtype(entry);
  return {
      .spec = {.name = name, .dtype = dtype, .shape = entry.shape},
      .read = [&entry, width = size_of(dtype)](int64_t first, int64_t count, std::vector<std::byte>& block) {
        block.resize(static_cast<size_t>(count * width));
        entry.bytes.read(first * width, std::ssize(block), block.data());
      }};
}

OutputTensor values_output(const SafetensorsSpec& spec, const ReadValues& read) {
  return {.spec = spec, .read = [spec, read](int64_t first, int64_t count, std::vector<std::byte>& block) {
            std::vector<float> values(static_cast<size_t>(count));
            read(spec.name, first, count, values.data());
            convert_floats(values, spec.name, first, spec.dtype, block);
          }};
}

OutputTensors quantized_outputs(QuantizingSource& source, const std::string& name, DType dtype,
                                DType storage) {
  QuantState state{.weight = source.weights().at(name), .dtype = dtype};
  const std::string offset = name + suffix_of(QuantizedPart::nested_offset);
  if (state.weight.format.nested)
    source.read_bytes(offset, 0, sizeof(float), reinterpret_cast<std::byte*>(&state.nested_offset));
  OutputTensors tensors;
  for (const SafetensorsSpec& spec : quantized_specs(name, state, storage)) {
    const bool is_part = find_part(source.weights(), spec.name).has_value();
    tensors.push_back({.spec = spec,
                       .read = [&source, spec, text = is_part ? "" : quant_state_json(state)](
                                   int64_t first, int64_t count, std::vector<std::byte>& block) {
                         const int64_t width = size_of(spec.dtype);
                         block.resize(static_cast<size_t>(count * width));
                         if (text.empty())
                           source.read_bytes(spec.name, first * width, std::ssize(block), block.data());
                         else
                           std::memcpy(block.data(), text.data() + first, block.size());
                       }});
  }
  return tensors;
}

void check_whole(const TensorSets& sets) {
  const std::vector<std::string> problems = mismatches(sets);
  check(problems.empty(), problems.empty() ? "" : problems.front(),
        problems.size() > 1 ? str(" (and ", problems.size() - 1, " more; ckpt verify lists them)") : "");
}

std::unique_ptr<PublishedWeights> weights_of(const TensorSets& sets) {
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  return std::make_unique<PublishedWeights>(sets.path(), Model(sets.config(), tables), sets.config().vocab);
}

std::unique_ptr<PublishedWeights> quantized_weights_of(const TensorSets& sets) {
  if (!sets.is_gguf() && quantized_in(sets.sets().front()).empty() && mxfp4_in(sets).empty()) return nullptr;
  return weights_of(sets);
}

ReadValues reader_of(PublishedWeights& weights) {
  return [&weights](const std::string& name, int64_t first, int64_t count, float* to) {
    weights.read(name, first, count, to);
  };
}

OutputTensors outputs_of(const TensorSets& sets, const std::optional<DType>& dtype,
                         PublishedWeights* weights) {
  OutputTensors outputs;
  if (sets.is_gguf()) {
    for (SafetensorsSpec& spec : specs_of(sets.config())) {
      spec.dtype = dtype.value_or(weights->gguf_dtype(spec.name));
      outputs.push_back(values_output(spec, reader_of(*weights)));
    }
    return outputs;
  }
  TensorEntries rest = sets.sets().front().entries;
  const std::vector<std::string> names = quantized_in(sets.sets().front()).names();
  const std::set<std::string> parts(names.begin(), names.end());
  const Mxfp4Tensors mxfp4 = mxfp4_in(sets);
  for (const std::string& name : mxfp4.names()) rest.erase(name);
  const auto add = [&](const std::string& name, const SafetensorsEntry& entry) {
    outputs.push_back(parts.contains(name) ? copied_output(name, entry)
                                           : float_output(name, entry, dtype_of_item(entry, dtype)));
  };
  for (const SafetensorsSpec& spec : specs_of(sets.config())) {
    if (mxfp4.has(spec.name)) {
      outputs.push_back(
          values_output({.name = spec.name, .dtype = dtype.value_or(DType::bf16), .shape = spec.shape},
                        reader_of(*weights)));
      continue;
    }
    const auto found = rest.find(spec.name);
    if (found == rest.end()) continue;
    if (weights && parts.contains(spec.name)) {
      const bool was_f16 = weights->quantized().state(spec.name).dtype == DType::f16;
      const DType to = dtype.value_or(was_f16 ? DType::f16 : DType::bf16);  // never fp32 unless it is wanted
      outputs.push_back(
          values_output({.name = spec.name, .dtype = to, .shape = spec.shape}, reader_of(*weights)));
    } else {
      add(spec.name, *found->second);
    }
    rest.erase(found);
  }
  for (const auto& [name, entry] : rest)
    if (!weights || !parts.contains(name)) add(name, *entry);
  return outputs;
}

void write_model(NewFolder& folder, const TensorSets& from, const ModelOutput& model,
                 const ExportOptions& options, const Console& console) {
  const int64_t bytes =
      from.has_adapters()
          ? write_tensors(folder, kAdapterStem, model.tensors, {}, options.shard_bytes, console)
          : write_tensors(folder, kWeightsStem, model.tensors, joined_among(model.tensors, from.config()),
                          options.shard_bytes, console);
  for (const char* name : {kAdapterConfigName, kAdapterBaseName})
    if (const fs::path file = from.folder() / name; from.has_adapters() && fs::exists(file))
      folder.write(name, read_whole_file(file.string(), kMostHfConfigBytes));
  HfConfigChanges changes = model.changes;
  changes.weights = options.dtype;
  if (!changes.quantization && !from.is_gguf() && !mxfp4_in(from).empty()) changes.quantization = "";
  folder.write(kConfigName, config_with(from, changes));
  for (const auto& [name, content] : model.tokenizer_files) folder.write(name, content);
  if (model.before_end) model.before_end();
  folder.finish();
  console.out << "wrote " << options.to << ", " << human_bytes(bytes) << " of weights\n";
}

}  // namespace flatshard
