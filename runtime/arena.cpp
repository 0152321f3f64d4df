#include "runtime/arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "build_config.h"

// The address sanitizer's interface, referenced only in builds with the sanitizer.
extern "C" void __asan_poison_memory_region(const volatile void* begin, size_t bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, size_t bytes);

namespace flatshard {
namespace {

// Makes the sanitizer report any access between the end of a tensor and `end`.
void guard_gap(const Tensor& t, const char* end) {
  if constexpr (kAddressSanitizer) {
    const char* begin = static_cast<const char*>(t.data) + t.bytes();
    __asan_unpoison_memory_region(t.data, static_cast<size_t>(t.bytes()));
    __asan_poison_memory_region(begin, static_cast<size_t>(end - begin));
  }
}

}  // namespace

Arena::Arena(std::string name, Device device, Placement placement)
    : name_(std::move(name)), device_(device), placement_(placement) {}

Tensor Arena::alloc(DType dtype, const Shape& shape) {
  Tensor t{nullptr, dtype, shape, device_};
  int64_t end = 0;
  const bool overflow = __builtin_mul_overflow(t.size(), size_of(dtype), &end) ||
                        __builtin_add_overflow(end, kAlignment - 1, &end) ||
                        __builtin_add_overflow(end / kAlignment * kAlignment, used_, &end);
  check(!overflow, "arena ", name_, ": a tensor ", shape, " of ", dtype, " is larger than 2^63 bytes");
  if (!planning_) {
    check(end <= capacity_, "arena ", name_, ": a tensor ", shape, " of ", dtype, " at byte ", used_,
          " ends at byte ", end, ", beyond the planned ", capacity_, " bytes");
    t.data = static_cast<char*>(memory_.data()) + options_.misalign + used_;
    if (options_.guard) guard_gap(t, static_cast<char*>(memory_.data()) + options_.misalign + end);
    if (options_.poison && !device_.is_cuda() && !t.empty())
      std::memset(t.data, 0xff, static_cast<size_t>(t.bytes()));
  }
  used_ = end;
  peak_ = std::max(peak_, used_);
  return t;
}

Tensor Arena::since(int64_t mark) const {
  Tensor t{nullptr, DType::u8, {used_ - mark}, device_};
  if (planning_) return t;
  t.data = static_cast<char*>(memory_.data()) + options_.misalign + mark;
  if (options_.guard)
    guard_gap(t, static_cast<char*>(t.data) + t.bytes());  // the gaps between are part of it
  return t;
}

int64_t Arena::peak() const {
  if (placement_ != Placement::shared || !device_.is_cuda()) return peak_;
  return (peak_ + kSharedGranule - 1) / kSharedGranule * kSharedGranule;
}

void Arena::rewind(int64_t mark) {
  check(0 <= mark && mark <= used_, "arena ", name_, ": rewind to byte ", mark, ", but only ", used_,
        " bytes are in use");
  used_ = mark;
}

void Arena::commit(CommitOptions options) {
  check(planning_, "arena ", name_, " is already committed");
  memory_ = Memory(device_, peak() + options.misalign, placement_);
  capacity_ = peak_;
  options_ = options;
  planning_ = false;
  used_ = peak_ = 0;
}

}  // namespace flatshard
