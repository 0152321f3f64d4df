#pragma once
// Puts fp32 values of the host into tensors of any float dtype, on any device, block by block: with no more
// memory than a block.

#include <functional>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class ValueWriter {
 public:
  static constexpr int64_t kBlock = int64_t{1} << 20;  // elements that a tensor has at most

  // make(values) puts them where they are wanted: in the tensor itself, where that can be. They are in the
  // tensor when it returns.
  void write(Stream& stream, const Tensor& to, const std::function<void(float* values)>& make);

 private:
  std::vector<float> values_, raw_;  // raw: in the tensor's dtype
};

}  // namespace flatshard
