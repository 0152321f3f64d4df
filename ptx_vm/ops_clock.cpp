// Special registers that change while a kernel runs: clocks. A warp's clock counts its instructions, the
// global timer what the machine has run and copied altogether.

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {
namespace {

uint64_t own_clock(const Warp& warp) { return warp.executed; }
uint64_t all_time(const Warp& warp) {
  return counters().warp_instructions + counters().copied_bytes + warp.executed;
}
uint64_t number_of_launch(const Warp&) { return counters().launches; }

template <class T, uint64_t (*value)(const Warp&), int kShift = 0>
void read(Warp& warp, const Op& op) {
  const auto now = static_cast<T>(value(warp) >> kShift);
  write_lanes<T>(warp, op.slot[0], [&](int) { return now; });
}

}  // namespace

Handler clock_reader(std::string_view name, uint32_t bytes) {
  if (bytes == 4) {
    if (name == "%clock") return read<uint32_t, own_clock>;
    if (name == "%clock_hi") return read<uint32_t, own_clock, 32>;
    if (name == "%globaltimer_lo") return read<uint32_t, all_time>;
    if (name == "%globaltimer_hi") return read<uint32_t, all_time, 32>;
  }
  if (bytes == 8) {
    if (name == "%clock64") return read<uint64_t, own_clock>;
    if (name == "%globaltimer") return read<uint64_t, all_time>;
    if (name == "%gridid") return read<uint64_t, number_of_launch>;
  }
  return nullptr;
}

}  // namespace flatshard::ptx_vm
