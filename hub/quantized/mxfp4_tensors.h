#pragma once
// Weights of experts in MXFP4, as gpt_oss is published. With E experts and a matrix of `out` rows for each,
//   T_blocks  U8 (E, out, in / 32, 16)   two 4-bit values a byte, the first in the low bits
//   T_scales  U8 (E, out, in / 32)       exponent + 127 of a block of 32 values
// stand for the tensor T (E, in, out), whose parts are parameters of the model. A value is 0, 0.5, 1, 1.5, 2,
// 3, 4 or 6 with a sign, times 2^exponent, which bf16 has exactly.

#include <map>
#include <string>
#include <vector>

#include "hub/quantized/quantized_tensors.h"
#include "model/config.h"

namespace flatshard {

class Mxfp4Tensors {
 public:
  // Finds the tensors among those of a folder, whose files must outlive the object. An Error begins with
  // `path` and names the tensor that is missing or has a wrong dtype or shape.
  Mxfp4Tensors(const std::string& path, const TensorEntries& entries, const ModelConfig& config);

  bool empty() const { return parts_.empty(); }
  // The names of the tensors in the files.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& parameter) const { return parts_.contains(parameter); }
  std::vector<int64_t> shape_of(const std::string& parameter) const;
  // Reads elements [first, first + count) of a parameter. The whole parameter is kept for the next call.
  void read(const std::string& parameter, int64_t first, int64_t count, float* to);

 private:
  struct Part {
    const SafetensorsEntry *blocks, *scales;
    int64_t expert, in, out;
  };
  void read_rows(const Part& part, int64_t first, int64_t count, float* to) const;

  std::map<std::string, Part> parts_;
  std::vector<std::string> names_;
  std::string current_;  // the parameter whose values are kept
  std::vector<float> values_;
};

}  // namespace flatshard
