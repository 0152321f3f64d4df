#pragma once
// A tensor that host and device share. On the CPU both are the same memory; a GPU tensor has a copy in pinned
// host memory, updated by asynchronous stream copies.

#include "runtime/arena.h"
#include "runtime/memory.h"

namespace flatshard {

class Mirror {
 public:
  Mirror() = default;
  Mirror(Arena& staging, const Tensor& tensor)
      : device(tensor), host(tensor.device.is_cuda() ? staging.alloc(tensor.dtype, tensor.shape) : tensor) {}

  // Copies host to device. The host must not write `host` until the stream has done the copy.
  void upload(Stream& stream) const { move(stream, device, host); }
  // Copies the first rows only.
  void upload(Stream& stream, int64_t rows) const {
    move(stream, device.slice(0, rows), host.slice(0, rows));
  }
  // Copies device to host. The host may read `host` after synchronizing the stream.
  void download(Stream& stream) const { move(stream, host, device); }

  Tensor device, host;

 private:
  void move(Stream& stream, const Tensor& to, const Tensor& from) const {
    if (device.device.is_cuda()) copy(stream, to, from);
  }
};

}  // namespace flatshard
