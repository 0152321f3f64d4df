#pragma once
// Initial values (InitialValues of kernels/init.h) that are read from weights, and initial values of models
// with 4-bit weights. Random values are in kernels/init.h: random_values().

#include <functional>
#include <vector>

#include "hub/quantized/read_values.h"
#include "kernels/init.h"
#include "model/config.h"

namespace flatshard {

// Values from `read`, converted to the dtype of the parameter.
InitialValues values_read_by(ReadValues read);

// Bytes [first, first + count) of a parameter with a dtype of its own, which is a part of a 4-bit weight.
using ReadBytes = std::function<void(const std::string& name, int64_t first, int64_t count, std::byte* to)>;
InitialValues bytes_read_by(ReadBytes read);

// Returns `values`, with the parts of 4-bit weights from `parts`.
InitialValues with_parts(InitialValues values, InitialValues parts);

// Returns `values`, with the parts of 4-bit weights quantized from the `values` of the unquantized model.
InitialValues quantized_values(InitialValues values, const ModelConfig& config);

// Writes fp32 values from the host into tensors of any float dtype on any device, with memory for one block.
class ValueWriter {
 public:
  static constexpr int64_t kBlock = int64_t{1} << 20;  // maximum elements per write()

  // Calls make(values) to fill a buffer, which is the tensor itself if possible. On return the tensor has the
  // values.
  void write(Stream& stream, const Tensor& to, const std::function<void(float* values)>& make);

 private:
  std::vector<float> values_, raw_;  // raw: values in the tensor's dtype
};

}  // namespace flatshard
