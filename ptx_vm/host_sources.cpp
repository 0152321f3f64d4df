#include "ptx_vm/host_sources.h"

#include <algorithm>
#include <cstring>

#include "ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {
namespace {

uint64_t sum_of(const void* data, uint64_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  uint64_t sum = bytes;
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, std::min(bytes - at, sizeof(word)));
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace

void HostSources::add(Point copy, const void* data, uint64_t bytes, const std::string& what) {
  all_.push_back({copy, data, bytes, sum_of(data, bytes), what});
}

void HostSources::check() const {
  for (const Source& source : all_)
    if (sum_of(source.data, source.bytes) != source.sum)
      report_operation(FindingKind::host_changed_source, source.what,
                       "the host changed the source before it waited for the copy");
}

void HostSources::look() {
  for (Source& source : all_) source.sum = sum_of(source.data, source.bytes);
}

void HostSources::forget(const Clock& host) {
  std::erase_if(all_, [&](const Source& source) { return covers(host, source.copy); });
}

}  // namespace flatshard::ptx_vm
