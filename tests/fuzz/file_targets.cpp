#include "tests/fuzz/file_targets.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "checkpoint/tensor_folder.h"
#include "hub/hf_config.h"
#include "hub/quantized/quantized_tensors.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/text_targets.h"
#include "tests/range_bytes.h"
#include "train/save/train_state.h"

namespace flatshard::test {
namespace {

using Bytes = std::span<const std::byte>;

constexpr const char* kFile = "file";

// The tensors are contiguous from the header to the end of the file.
void check_entries(const SafetensorsContent& content, int64_t at, int64_t file_bytes) {
  for (const SafetensorsEntry& entry : content.entries) {
    require(entry.bytes.begin == at, "tensors overlap or leave a hole");
    require(entry.bytes.size >= 0 && entry.bytes.size <= file_bytes - at, "a tensor leaves the file");
    at += entry.bytes.size;
    for (const int64_t extent : entry.shape) require(extent >= 0, "an extent is negative");
  }
  require(at == file_bytes, "tensors end before the file");
}

std::string try_safetensors(Bytes bytes) {
  const int64_t size = std::ssize(bytes);
  return refusal([&] {
    const size_t header = safetensors_header_bytes(bytes, size);
    check_entries(parse_safetensors(bytes.first(header), size), static_cast<int64_t>(header), size);
  });
}

// A folder with two files of tensors, a and b, and c, and any index.
class IndexedFolder {
 public:
  static constexpr const char* kPath = "fuzz_index";

  IndexedFolder() {
    std::filesystem::create_directories(kPath);
    write_tensors("model-00001-of-00002.safetensors", {{"a", DType::f32, {2}}, {"b", DType::u8, {3}}});
    write_tensors("model-00002-of-00002.safetensors", {{"c", DType::bf16, {2, 2}}});
  }
  TensorFolder open(std::string_view index) const {
    std::ofstream(std::string(kPath) + "/model.safetensors.index.json", std::ios::binary) << index;
    return TensorFolder(kPath, "model");
  }

 private:
  static void write_tensors(const std::string& name, const std::vector<SafetensorsSpec>& specs) {
    const SafetensorsLayout layout(specs);
    SafetensorsWriter(std::string(kPath) + "/" + name, layout, true).finish();
  }
};

// Every named tensor is found in a file of the folder.
std::string try_index(Bytes bytes) {
  SafetensorsIndex index;
  const std::string malformed = refusal([&] { index = parse_safetensors_index(text_of(bytes)); });
  if (!malformed.empty()) return malformed;
  static const IndexedFolder folder;
  return refusal([&] {
    const TensorFolder tensors = folder.open(text_of(bytes));
    require(tensors.entries().size() == index.weight_map.size(), "a tensor of the index is lost");
    for (const auto& file : tensors.files())
      require(std::filesystem::path(file->path()).parent_path() == IndexedFolder::kPath,
              "a file lies outside the folder");
    for (const auto& [name, entry] : tensors.entries()) range_bytes(entry->bytes);
  });
}

// A value that is read and can be written round-trips.
std::string try_config_json(Bytes bytes) {
  ModelConfig config;
  const std::string reason = refusal([&] { config = parse_hf_config(text_of(bytes), kFile); });
  if (!reason.empty()) return reason;
  const std::string written = hf_config_json(config, DType::f32);
  require(hf_config_json(parse_hf_config(written, kFile), DType::f32) == written,
          "a config that was written is read as another one");
  return "";
}

// Every part of a 4-bit weight that is accepted can be read whole, and its values are as many as its shape
// says.
std::string try_quantized(Bytes bytes) {
  constexpr int64_t kMostValues = 1 << 16;  // to dequantize; a weight of 2 KiB has fewer
  static const std::string path = "fuzz_quantized.safetensors";
  std::ofstream(path, std::ios::binary) << text_of(bytes);
  return refusal([&] {
    const SafetensorsFile file(path);
    TensorEntries entries;
    for (const SafetensorsEntry& entry : file.entries()) entries[entry.name] = &entry;
    QuantizedTensors tensors(path, entries);
    for (const std::string& name : tensors.names()) require(entries.contains(name), "a tensor is missing");
    std::vector<std::byte> part;
    std::vector<float> values;
    for (const auto& [name, weight] : tensors.weights()) {
      const QuantState& state = tensors.state(name);
      require(quant_state_json(parse_quant_state(quant_state_json(state), kFile)) == quant_state_json(state),
              "a description that was written is read as another one");
      for (const QuantizedPart of : parts_of(weight.format)) {
        part.resize(static_cast<size_t>(elements_of_part(weight, of) * size_of(dtype_of_part(weight, of))));
        tensors.read_bytes(name + suffix_of(of), 0, std::ssize(part), part.data());
      }
      values.resize(static_cast<size_t>(std::min(weight.elements(), kMostValues)));
      tensors.read(name, weight.elements() - std::ssize(values), std::ssize(values), values.data());
    }
  });
}

std::string try_train_state(Bytes bytes) {
  TrainState state;
  const std::string reason = refusal([&] { state = parse_train_state(text_of(bytes), kFile); });
  if (!reason.empty()) return reason;
  const std::string written = to_json(state);
  require(to_json(parse_train_state(written, kFile)) == written,
          "a state that was written is read as another one");
  return "";
}

constexpr FileTarget kTargets[] = {{"chat_template", try_chat_template},
                                   {"safetensors", try_safetensors},
                                   {"index", try_index},
                                   {"config", try_config_json},
                                   {"quantized", try_quantized},
                                   {"train_state", try_train_state},
                                   {"tokenizer", try_tokenizer},
                                   {"dataset", try_dataset},
                                   {"answers", try_answers},
                                   {"token_file", try_token_file},
                                   {"token_column", try_token_column},
                                   {"image", try_image}};

}  // namespace

std::span<const FileTarget> file_targets() { return kTargets; }

const FileTarget& file_target(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTargets), std::end(kTargets),
                                   [&](const FileTarget& target) { return target.name == name; });
  std::string names;
  for (const FileTarget& target : kTargets) names += str(names.empty() ? "" : ", ", target.name);
  check(found != std::end(kTargets), "\"", std::string(name), "\" is no target, must be one of ", names);
  return *found;
}

}  // namespace flatshard::test
