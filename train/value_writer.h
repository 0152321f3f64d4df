#pragma once
// Puts fp32 values of the host into tensors of any float dtype, on any device, block by block: with no more
// memory than a block.

#include <cstddef>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class ValueWriter {
 public:
  static constexpr int64_t kBlock = int64_t{1} << 20;  // elements that a tensor has at most

  // The values may lie at any address. They are in the tensor when it returns.
  void write(Stream& stream, const Tensor& to, const std::byte* values);

 private:
  std::vector<float> values_, raw_;  // aligned; in the tensor's dtype
};

}  // namespace flatshard
