#pragma once
// The JSON of tensors' files: the header of a safetensors file
//   {"__metadata__":{"key":"value",...},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
// and the index of several such files
//   {"metadata":{"total_size":24},"weight_map":{"name":"model-00001-of-00002.safetensors",...}}
// Reading checks only the form: UTF-8, no name twice, in a header no member that does not belong there,
// at most 64 dimensions, numbers that are whole, not negative and below 2^64. It takes n log n time at most,
// for these files may come from anybody. What they mean is for safetensors.h and
// tensor_folder.h to check.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// For files whose meaning others know: an Error that begins with the path unless the text is JSON in UTF-8,
// with no name twice in an object, at most 16,384 names in one and nothing nested needlessly deep, so that
// every reader takes it for the same and none stumbles over it.
void check_json(std::string_view text, const std::string& path);

struct SafetensorsHeader {
  struct Tensor {
    std::string name, dtype;
    std::vector<uint64_t> shape;
    std::array<uint64_t, 2> offsets{};  // begin and end in the data behind the header
  };
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;
};

// An Error that says what is wrong; whose header it is, the caller adds.
SafetensorsHeader parse_safetensors_header(std::string_view text);

// Compact, metadata first where there is any, tensors in the order given.
std::string to_json(const SafetensorsHeader& header);

struct SafetensorsIndex {
  std::optional<uint64_t> total_size;             // bytes of all tensors, where the file says it
  std::map<std::string, std::string> weight_map;  // tensor -> file
};

// As above; what else the metadata hold is passed over.
SafetensorsIndex parse_safetensors_index(std::string_view text);

// With line breaks, as Hugging Face writes it.
std::string to_json(const SafetensorsIndex& index);

}  // namespace flatshard
