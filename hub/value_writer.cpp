#include "hub/value_writer.h"

#include <algorithm>

#include "runtime/memory.h"

namespace flatshard {

void ValueWriter::write(Stream& stream, const Tensor& to, const std::function<void(float*)>& make) {
  Tensor here = to;
  if (to.device.is_cuda()) {
    raw_.resize(static_cast<size_t>(kBlock));  // enough for any dtype
    here = {raw_.data(), to.dtype, to.shape, Device::cpu()};
  }
  visit_float(here.dtype, [&]<class T>() {
    T* const target = here.as<T>();
    if constexpr (std::is_same_v<T, float>) {
      make(target);
    } else {
      values_.resize(static_cast<size_t>(kBlock));
      make(values_.data());
      std::transform(values_.begin(), values_.begin() + here.size(), target, [](float x) { return T(x); });
    }
  });
  if (!to.device.is_cuda()) return;
  copy(stream, to, here);
  stream.sync();
}

}  // namespace flatshard
