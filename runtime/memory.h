#pragma once
// Owned memory on a device, copies between devices, and the counters that prove that a step does not
// allocate.

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// pinned: page-locked, for copies to and from the selected GPU. shared: device memory that other GPUs may
// reach, in whole granules; the same as plain until share_memory_with() is called.
enum class Placement { plain, pinned, shared };
constexpr int64_t kSharedGranule = int64_t{2} << 20;

// The functions of a communication library that allocate and release memory that other ranks may reach.
struct SharedAllocator {
  void* (*allocate)(Device device, int64_t bytes);
  void (*release)(void* data) noexcept;
};
void share_memory_with(const SharedAllocator& allocator);

// An owned block of memory. Host blocks are page-aligned.
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

// Process-wide counters: the number of allocations so far and the bytes that are allocated now.
struct MemoryCounters {
  int64_t allocations = 0;
  int64_t live_bytes = 0;
};
MemoryCounters memory_counters();

// dst = src, in stream order, between any two devices. Both must have the same dtype and number of elements.
void copy(Stream& stream, const Tensor& dst, const Tensor& src);
// Sets every byte of dst, in stream order.
void fill_bytes(Stream& stream, const Tensor& dst, unsigned char value);
inline void zero(Stream& stream, const Tensor& dst) { fill_bytes(stream, dst, 0); }

}  // namespace flatshard
