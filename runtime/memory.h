#pragma once
// Owned memory on a device, copies between devices, and the counters that show that a step allocates nothing.

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

enum class Placement { plain, pinned };  // pinned: host memory that a CUDA device copies from asynchronously

// A block of memory, freed with its owner. Host blocks start at a page.
class Memory {
 public:
  Memory() = default;
  Memory(Device device, int64_t bytes, Placement placement = Placement::plain);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
  Placement placement_ = Placement::plain;
};

// All Memory of this process so far: how often it was allocated, and how much is alive now.
struct MemoryCounters {
  int64_t allocations = 0;
  int64_t live_bytes = 0;
};
MemoryCounters memory_counters();

// dst = src, both of one dtype and size, between any two devices; in stream order.
void copy(Stream& stream, const Tensor& dst, const Tensor& src);
// Every byte of dst = 0, in stream order.
void zero(Stream& stream, const Tensor& dst);

}  // namespace flatshard
