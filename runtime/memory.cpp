#include "runtime/memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

#include "build_config.h"
#include "runtime/cuda.h"
#include "runtime/recording.h"

namespace flatshard {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

std::atomic<int64_t> allocations{0}, live_bytes{0};
SharedAllocator shared_allocator{};

// Large blocks request huge pages, which reduce the TLB misses of streaming access.
void* allocate_host(int64_t bytes) {
  const size_t page = static_cast<size_t>(bytes) < 2 * kHugePage ? kPage : kHugePage;
  const size_t rounded = (static_cast<size_t>(bytes) + page - 1) / page * page;
  void* data = std::aligned_alloc(page, rounded);
  check(data != nullptr, "out of host memory: cannot allocate ", bytes, " bytes");
  if (page == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);  // a hint; failure is harmless
  return data;
}

void* allocate(Device device, int64_t bytes, Placement placement) {
  if constexpr (kCudaBuilt) {
    if (placement == Placement::shared) return shared_allocator.allocate(device, bytes);
    if (device.is_cuda()) return cuda::allocate(device, bytes);
    if (placement == Placement::pinned) return cuda::allocate_pinned(bytes);
  }
  check(!device.is_cuda(), "cannot allocate on ", device, ": this build has no CUDA");
  return allocate_host(bytes);
}

void release(Device device, void* data, Placement placement) noexcept {
  if constexpr (kCudaBuilt) {
    if (placement == Placement::shared) return shared_allocator.release(data);
    if (device.is_cuda()) return cuda::release(device, data);
    if (placement == Placement::pinned) return cuda::release_pinned(data);
  }
  std::free(data);
}

}  // namespace

void share_memory_with(const SharedAllocator& allocator) { shared_allocator = allocator; }

int cuda_device_count() {
  if constexpr (kCudaBuilt) return cuda::device_count();
  return 0;
}

std::string why_no_cuda_device() {
  if constexpr (kCudaBuilt) return cuda::why_no_device();
  return "a build without CUDA";
}

Memory::Memory(Device device, int64_t bytes, [[maybe_unused]] Placement placement)
    : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  if constexpr (kCudaBuilt)
    if (placement == Placement::shared ? device.is_cuda() && shared_allocator.allocate : cuda::is_selected())
      placement_ = placement;
  data_ = allocate(device, bytes, placement_);
  ++allocations;
  live_bytes += bytes;
}

Memory::~Memory() {
  if (!data_) return;
  release(device_, data_, placement_);
  live_bytes -= bytes_;
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      placement_(other.placement_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(placement_, other.placement_);
  return *this;
}

MemoryCounters memory_counters() { return {.allocations = allocations, .live_bytes = live_bytes}; }

namespace {

// Bytes between a GPU and its host cross the bus once; other copies read and write the same memory.
OpCall copy_call(const Tensor& dst, const Tensor& src) {
  using enum OpCall::Path;
  const bool to_gpu = dst.device.is_cuda(), from_gpu = src.device.is_cuda();
  return {.name = "copy",
          .shape = {dst.bytes()},
          .dtype = DType::u8,
          .path = to_gpu == from_gpu ? none
                  : to_gpu           ? to_device
                                     : to_host,
          .bytes = static_cast<double>((to_gpu == from_gpu ? 2 : 1) * dst.bytes())};
}

}  // namespace

void copy(Stream& stream, const Tensor& dst, const Tensor& src) {
  check(dst.dtype == src.dtype && dst.size() == src.size(), "copy of ", src.dtype, " ", src.shape, " into ",
        dst.dtype, " ", dst.shape);
  if (dst.empty()) return;
  if (stream.recorded()) stream.note(copy_call(dst, src));
  if (stream.planning()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) {
      cuda::copy(stream.native(), dst.data, src.data, dst.bytes());
      return stream.launched();
    }
  stream.run("copy", [dst, src] { std::memcpy(dst.data, src.data, static_cast<size_t>(dst.bytes())); });
}

void fill_bytes(Stream& stream, const Tensor& dst, unsigned char value) {
  if (dst.empty()) return;
  if (stream.recorded())
    stream.note({.name = "fill",
                 .shape = {dst.bytes()},
                 .dtype = DType::u8,
                 .bytes = static_cast<double>(dst.bytes())});
  if (stream.planning()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) {
      cuda::fill_bytes(stream.native(), dst.data, value, dst.bytes());
      return stream.launched();
    }
  stream.run("fill", [dst, value] { std::memset(dst.data, value, static_cast<size_t>(dst.bytes())); });
}

}  // namespace flatshard
