#include "ptx_vm/counts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <set>

#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/warp.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kPage = 4096, kSector = 32, kBanks = 32, kBankBytes = 4;

}  // namespace

// "m16n8k16" of an mma or wgmma: its products, times two; of one warp's share.
double tensor_flops(std::string_view opcode) {
  const bool is_warpgroup = opcode.starts_with("wgmma.mma_async");
  if (!is_warpgroup && !opcode.starts_with("mma.")) return 0;
  for (size_t dot = opcode.find('.'); dot != opcode.npos; dot = opcode.find('.', dot + 1)) {
    int m = 0, n = 0, k = 0;
    if (std::sscanf(std::string(opcode.substr(dot + 1)).c_str(), "m%dn%dk%d", &m, &n, &k) == 3)
      return 2.0 * m * n * k / (is_warpgroup ? 4 : 1);
  }
  return 0;
}

uint64_t KernelCounts::executed() const {
  uint64_t all = 0;
  for (const OpCounts& op : ops) all += op.executed;
  return all;
}

std::map<std::string, uint64_t> KernelCounts::by_opcode() const {
  std::map<std::string, uint64_t> all;
  for (size_t i = 0; i < ops.size(); ++i)
    if (ops[i].executed) all[std::string(kernel->instructions[i]->opcode)] += ops[i].executed;
  return all;
}

double KernelCounts::tensor_flops() const {
  double all = 0;
  for (const auto& [opcode, count] : by_opcode())
    all += ptx_vm::tensor_flops(opcode) * static_cast<double>(count);
  return all;
}

KernelCounts& Counts::of(const Kernel& kernel) {
  const auto [entry, is_new] = index_.try_emplace(&kernel, kernels_.size());
  if (is_new) kernels_.push_back({.kernel = &kernel, .ops = std::vector<OpCounts>(kernel.code.size())});
  return kernels_[entry->second];
}

OpCounts Counts::total() const {
  OpCounts all;
  for (const KernelCounts& kernel : kernels_)
    for (const OpCounts& op : kernel.ops) {
      all.executed += op.executed;
      all.requests += op.requests;
      all.sectors += op.sectors;
      all.least_sectors += op.least_sectors;
      all.waves += op.waves;
      all.least_waves += op.least_waves;
    }
  return all;
}

uint64_t Counts::bytes_of(const Touched& touched) {
  uint64_t all = 0;
  for (const auto& [address, page] : touched)
    for (const unsigned char bits : page) all += static_cast<uint64_t>(std::popcount(bits));
  return all;
}

uint64_t Counts::touched_bytes() const { return bytes_of(touched_); }

void Counts::begin_launch() {
  launch_bytes_ += bytes_of(touched_in_launch_);
  touched_in_launch_.clear();
}

uint64_t Counts::launch_bytes() const { return launch_bytes_ + bytes_of(touched_in_launch_) + copied_bytes_; }

uint64_t Counts::launches() const {
  uint64_t all = products_ + copies_;
  for (const KernelCounts& kernel : kernels_) all += kernel.launches;
  return all;
}

void Counts::add_piece(uint64_t address, uint64_t bytes, Access access) {
  const auto bits = static_cast<unsigned char>(access == Access::read ? 1 : access == Access::write ? 2 : 3);
  requested_bytes_ += bytes * (access == Access::update ? 2 : 1);
  for (Touched* touched : {&touched_, &touched_in_launch_})
    for (uint64_t at = address; at < address + bytes;) {
      std::vector<unsigned char>& page = (*touched)[at / kPage * kPage];
      if (page.empty()) page.resize(kPage);
      const uint64_t end = std::min(address + bytes, (at / kPage + 1) * kPage);
      for (; at < end; ++at) page[at % kPage] |= bits;
    }
}

void Counts::add_global(OpCounts& counts, const std::vector<uint64_t>& addresses, uint32_t bytes,
                        Access access) {
  std::set<uint64_t> sectors, distinct;
  for (const uint64_t address : addresses) {
    add_piece(address, bytes, access);
    distinct.insert(address);
    for (uint64_t at = address / kSector; at <= (address + bytes - 1) / kSector; ++at) sectors.insert(at);
  }
  ++counts.requests;
  counts.sectors += sectors.size();
  counts.least_sectors += (distinct.size() * bytes + kSector - 1) / kSector;
}

// Lanes are served in groups of at most 128 bytes; each bank serves one word of a group per cycle.
void Counts::add_shared(OpCounts& counts, const std::vector<uint64_t>& addresses,
                        const std::vector<int>& lanes, uint32_t bytes) {
  const int lanes_of_group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  for (int first = 0; first < kLanes; first += lanes_of_group) {
    std::array<std::set<uint64_t>, kBanks> words;
    std::set<uint64_t> distinct;
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (lanes[i] < first || lanes[i] >= first + lanes_of_group) continue;
      for (uint64_t word = addresses[i] / kBankBytes; word <= (addresses[i] + bytes - 1) / kBankBytes;
           ++word) {
        words[word % kBanks].insert(word);
        distinct.insert(word);
      }
    }
    if (distinct.empty()) continue;
    size_t most = 0;
    for (const std::set<uint64_t>& bank : words) most = std::max(most, bank.size());
    counts.waves += most;
    counts.least_waves += (distinct.size() + kBanks - 1) / kBanks;
  }
}

void Counts::add_access(KernelCounts& kernel, const Warp& warp, const Op& op, uint32_t base_slot,
                        uint32_t bytes, Access access) {
  if (op.space == Space::param || op.space == Space::local) return;
  std::vector<uint64_t> global, shared;
  std::vector<int> shared_lanes;
  for_each_lane(warp.active, [&](int lane) {
    const uint64_t base =
        op.wide_address ? warp.lanes<uint64_t>(base_slot)[lane] : warp.lanes<uint32_t>(base_slot)[lane];
    const uint64_t address = base + static_cast<uint64_t>(op.immediate);
    const uint64_t window = op.space == Space::generic ? address & kWindowMask : 0;
    if (op.space == Space::shared || op.space == Space::cluster || window == kSharedWindow) {
      shared.push_back(address & ~kWindowMask);
      shared_lanes.push_back(lane);
    } else if (window == 0) {
      global.push_back(address);
    }
  });
  OpCounts& counts = kernel.ops[op.index];
  if (!global.empty()) add_global(counts, global, bytes, access);
  if (!shared.empty()) add_shared(counts, shared, shared_lanes, bytes);
}

Counts counts_of(const std::function<void()>& work) {
  Counts counts;
  Options wanted = options();
  wanted.counts = &counts;
  const ScopedOptions scope(wanted);
  work();
  return counts;
}

}  // namespace flatshard::ptx_vm
