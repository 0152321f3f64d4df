#pragma once
// A tensor that the host and the device both work with. On the CPU the two are one; a device's has a twin in
// pinned host memory, and copies in the order of a stream, so that nobody waits for them.

#include "runtime/arena.h"
#include "runtime/memory.h"

namespace flatshard {

class Mirror {
 public:
  Mirror() = default;
  Mirror(Arena& staging, const Tensor& tensor)
      : device(tensor), host(tensor.device.is_cuda() ? staging.alloc(tensor.dtype, tensor.shape) : tensor) {}

  // What the host has written is on the device; it must leave its twin alone until the stream is done.
  void upload(Stream& stream) const { move(stream, device, host); }
  // The host may read it once it has waited for the stream.
  void download(Stream& stream) const { move(stream, host, device); }

  Tensor device, host;

 private:
  void move(Stream& stream, const Tensor& to, const Tensor& from) const {
    if (device.device.is_cuda()) copy(stream, to, from);
  }
};

}  // namespace flatshard
