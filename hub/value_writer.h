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

  // make(values) fills a buffer, which is the tensor itself if possible. The tensor has the values on return.
  void write(Stream& stream, const Tensor& to, const std::function<void(float* values)>& make);

 private:
  std::vector<float> values_, raw_;  // raw: in the tensor's dtype
};

}  // namespace flatshard
