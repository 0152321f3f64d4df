// The CUDA runtime on the machine: copies and memsets. A copy from pinned memory reads it when the copy runs,
// a copy from pageable memory before the call returns. A copy to pageable memory blocks the host.

#include <cstring>
#include <memory>

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/counts.h"
#include "ptx_vm/piece.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

void copy_rows(const Piece& to, const Piece& from) {
  for (size_t i = 0; i < to.height; ++i) {
    std::memmove(to.row(i), from.row(i), to.width);
    heap().copy_marks(to.row(i), from.row(i), to.width);
  }
  counters().copied_bytes += to.bytes();
}

// The bytes of device memory that a copy or a fill accesses.
void count(const Piece& to, const Piece& from = {}) {
  if (Counts* counts = options().counts)
    counts->add_copy((to.is_on_device() ? to.bytes() : 0) + (from.is_on_device() ? from.bytes() : 0));
}

void check_direction(const Piece& to, const Piece& from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault || to.bytes() == 0) return;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to.is_on_device() != to_device || from.is_on_device() != from_device)
    throw CallError(cudaErrorInvalidMemcpyDirection,
                    str("a copy from ", name_of(from), " to ", name_of(to), " of another kind"));
}

// Enqueues the copy, and waits for it if the call is synchronous.
void copy(const Piece& to, Piece from, cudaMemcpyKind kind, Queue& queue, bool is_async) {
  if (!to.bytes()) return;
  check_range(to, "a copy");
  check_range(from, "a copy");
  check_direction(to, from, kind);
  const std::string what = str("copy of ", to.bytes(), " bytes from ", name_of(from), " to ", name_of(to));
  const bool from_pinned = from.home() && !from.is_on_device(), from_pageable = !from.home();
  const bool ends_on_host = !to.is_on_device(),
             host_waits = is_async ? !to.home() : ends_on_host || from_pinned;
  if (from_pageable || host_waits)
    refuse_captured(queue, "a synchronous copy, or a copy from pageable memory,");
  if (from_pageable && !is_async) streams().finish(queue.milestone());
  std::shared_ptr<std::vector<unsigned char>> captured;
  if (from_pageable) {
    captured = std::make_shared<std::vector<unsigned char>>(from.bytes());
    for (size_t i = 0; i < from.height; ++i)
      std::memcpy(captured->data() + i * from.width, from.row(i), from.width);
    from.data = captured->data();
    from.pitch = from.width;
  }
  const Milestone milestone = streams().enqueue(queue, what, [=](Activity& self) {
    Past past(timeline().begin(self));
    if (!captured) touch(from, past, false);
    touch(to, past, true);
    copy_rows(to, from);
    count(to, from);
  });
  if (host_waits)
    streams().finish(milestone);
  else if (from_pinned && !queue.captured.capture)
    streams().watch(milestone, from.data, from.extent(), what);
}

// With pinned memory only a synchronous copy blocks the host.
void fill(const Piece& p, int value, Queue& queue, bool is_async) {
  if (!p.bytes()) return;
  check_range(p, "a memset");
  const Milestone milestone =
      streams().enqueue(queue, str("memset of ", p.bytes(), " bytes from ", name_of(p)), [=](Activity& self) {
        Past past(timeline().begin(self));
        touch(p, past, true);
        for (size_t i = 0; i < p.height; ++i) {
          std::memset(p.row(i), value, p.width);
          heap().mark_written(p.row(i), p.width);
        }
        counters().copied_bytes += p.bytes();
        count(p);
      });
  if (!is_async && !p.is_on_device()) streams().finish(milestone);
}

Piece symbol_piece(const void* symbol, size_t bytes, size_t offset) {
  uint64_t size = 0;
  void* data = variable_of(symbol, &size);
  check(data != nullptr, "no device variable is registered at this address");
  return piece_of(static_cast<char*>(data) + offset, bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return attempt([&] { copy(piece_of(to, bytes), piece_of(from, bytes), kind, queue_of(stream), true); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return attempt([&] { copy(piece_of(to, bytes), piece_of(from, bytes), kind, queue_of(nullptr), false); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return attempt([&] {
    const Piece target{static_cast<unsigned char*>(to), to_pitch, width, height};
    Piece source = piece_of(from, width);
    source.pitch = from_pitch;
    source.height = height;
    copy(target, source, kind, queue_of(stream), true);
  });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return attempt([&] { fill(piece_of(data, bytes), value, queue_of(stream), true); });
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return attempt([&] { fill(piece_of(data, bytes), value, queue_of(nullptr), false); });
}
cudaError_t cudaMemset2DAsync(void* data, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return attempt([&] {
    fill({static_cast<unsigned char*>(data), pitch, width, height}, value, queue_of(stream), true);
  });
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return attempt([&] {
    copy(symbol_piece(symbol, bytes, offset), piece_of(from, bytes), kind, queue_of(stream), true);
  });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return attempt([&] {
    copy(symbol_piece(symbol, bytes, offset), piece_of(from, bytes), kind, queue_of(nullptr), false);
  });
}
}

}  // namespace flatshard::ptx_vm
