#pragma once
// The JSON of tensor files: the header of a safetensors file
//   {"__metadata__":{"key":"value",...},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
// and the index of several such files
//   {"metadata":{"total_size":24},"weight_map":{"name":"model-00001-of-00002.safetensors",...}}
// Parsing checks only the syntax: UTF-8, no duplicate names, no unknown members in a header, at most 64
// dimensions, and whole numbers from 0 to 2^64 - 1. It takes at most O(n log n) time, because files are
// untrusted. safetensors.h and tensor_folder.h check the meaning.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

struct SafetensorsHeader {
  struct Tensor {
    std::string name, dtype;
    std::vector<uint64_t> shape;
    std::array<uint64_t, 2> offsets{};  // begin and end in the data after the header
  };
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;
};

// The Error for a bad header does not name the file; the caller adds the name.
SafetensorsHeader parse_safetensors_header(std::string_view text);

// The header as compact JSON: metadata, if any, then the tensors in the order given.
std::string to_json(const SafetensorsHeader& header);

struct SafetensorsIndex {
  std::optional<uint64_t> total_size;             // bytes of all tensors, if the file has it
  std::map<std::string, std::string> weight_map;  // tensor -> file
};

// Parses an index like parse_safetensors_header(). Other metadata is ignored.
SafetensorsIndex parse_safetensors_index(std::string_view text);

// The index as JSON with line breaks, in the form that Hugging Face writes.
std::string to_json(const SafetensorsIndex& index);

}  // namespace flatshard
