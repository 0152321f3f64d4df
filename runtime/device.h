#pragma once
// The location of a tensor or a stream: the host CPU or one CUDA device.

#include <ostream>
#include <string>

namespace flatshard {

struct Device {
  enum class Kind : unsigned char { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }
  constexpr bool is_cuda() const { return kind == Kind::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

// The number of CUDA devices this process can use: 0 without a GPU or driver and in a build without CUDA.
int cuda_device_count();
// The reason, as CUDA reports it, why there is no device.
std::string why_no_cuda_device();

inline std::ostream& operator<<(std::ostream& out, Device device) {
  return device.is_cuda() ? out << "cuda:" << device.index : out << "cpu";
}

}  // namespace flatshard
