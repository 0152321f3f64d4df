#pragma once
// Writes fp32 values from the host into tensors of any float dtype on any device, with memory for one block.

#include <functional>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

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
