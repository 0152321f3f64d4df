#pragma once
// 4-bit weights in safetensors files, as stored by bitsandbytes. The tensors of a weight P.weight are its
// parts (quantized_part.h), except nested_offset, and quant_state (quant_state.h). The bytes of the codes are
// declared as the elements of a storage dtype, U8, BF16, F16 or F32, in the shape (n, 1).
//
// The reader trusts nothing: the parts of a weight must have the dtypes and sizes that follow from its
// quant_state. Tables are read from the file.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "hub/quantized/quant_state.h"
#include "runtime/stream.h"

namespace flatshard {

using TensorEntries = std::map<std::string, const SafetensorsEntry*>;  // keyed by name

class QuantizedTensors {
 public:
  // Finds the quantized weights among the tensors of a folder, whose files must outlive the object. An Error
  // begins with `path` and names the tensor.
  QuantizedTensors(const std::string& path, const TensorEntries& entries);

  bool empty() const { return weights_.empty(); }
  const FourBitWeights& weights() const { return weights_; }
  const QuantState& state(const std::string& weight) const { return states_.at(weight); }
  // The names of the tensors of one quantized weight, or of all.
  std::vector<std::string> names_of(const std::string& weight) const;
  std::vector<std::string> names() const;

  // Reads bytes [first, first + count) of a part. Throws an Error if a scale or table entry among them is not
  // finite.
  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) const;
  // Reads elements [first, first + count) of a weight, row by row in its shape (out, in), dequantized to
  // fp32.
  void read(const std::string& weight, int64_t first, int64_t count, float* to);

 private:
  void add(const std::string& name, const SafetensorsEntry& entry);
  void check_parts(const std::string& name, const QuantState& state) const;
  void check_orphans() const;
  void read_piece(const std::string& name, const FourBitWeight& weight, int64_t first, int64_t count,
                  float* to);

  std::string path_;
  TensorEntries entries_;
  FourBitWeights weights_;
  std::map<std::string, QuantState> states_;
  StreamSet streams_;
  Stream& stream_;
};

// The tensors of a quantized weight for a file that stores codes in this dtype. Throws an Error if the codes
// do not fill a whole number of elements.
std::vector<SafetensorsSpec> quantized_specs(const std::string& name, const QuantState& state, DType storage);

}  // namespace flatshard
