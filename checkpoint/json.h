#pragma once
// The JSON header of a safetensors file:
//   {"__metadata__":{"key":"value",...},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
// Reading checks only its form: UTF-8, no name twice, no member that does not belong there, numbers that are
// whole, not negative and below 2^64. What the numbers mean is for safetensors.h to check.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

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

}  // namespace flatshard
