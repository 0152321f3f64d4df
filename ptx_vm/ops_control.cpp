// bra brx ret exit trap brkpt bar barrier nanosleep

#include <bit>
#include <cstring>

#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ops_cluster.h"
#include "ptx_vm/ops_warp.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kU32{Type::Kind::unsigned_int, 4};

void branch(Decoder& d) {
  d.take("uni");
  d.branch_to(d.operand(0).name);
}

void branch_by_table(Decoder& d) {
  if (!d.take("idx")) d.wrong("only .idx is supported");
  d.take("uni");
  d.branch_by_table(d.operand(1).name);
}

void end_lanes(Decoder& d) {
  d.take("uni");
  Op op;
  op.flow = Flow::exit;
  d.emit(op);
}

void stop(Decoder& d) {
  Op op;
  op.run = [](Warp& warp, const Op&) {
    const bool is_trap = warp.block->kernel().instructions[warp.current]->opcode == "trap";
    report(FindingKind::trap, warp, std::countr_zero(warp.active),
           is_trap ? "the kernel executed trap" : "breakpoint without a debugger");
  };
  d.emit(op);
}

template <bool kWaits>
void arrive(Warp& warp, const Op& op) {
  const int lane = std::countr_zero(warp.active);
  const uint32_t id = warp.lanes<uint32_t>(op.slot[0])[lane];
  const uint32_t expected = op.count > 1 ? warp.lanes<uint32_t>(op.slot[1])[lane] : 0;
  warp.block->arrive(warp, id, expected, kWaits);
}

void bar(Decoder& d) {
  if (d.take("cluster")) return decode_cluster_barrier(d);
  if (d.take("warp")) {
    d.take("sync");
    return decode_warp_barrier(d);
  }
  d.take("cta");
  d.take("aligned");
  Op op;
  op.flow = Flow::barrier;
  const std::string_view what = d.take_any({"sync", "arrive", "red"});
  if (what.empty()) d.wrong("must be .sync, .arrive or .red");
  op.run = what == "arrive" ? arrive<false> : arrive<true>;
  size_t first = 0, last = d.operands();
  if (what == "red") {
    const std::string_view name = d.take_any({"popc", "and", "or"});
    if (name.empty()) d.wrong("must be .popc, .and or .or");
    op.immediate = static_cast<int64_t>(name == "popc"  ? Reduction::count
                                        : name == "and" ? Reduction::all
                                                        : Reduction::any);
    op.slot[2] = d.result(0, d.take_type());
    op.slot[3] = d.predicate(d.operand(d.operands() - 1));
    first = 1, last = d.operands() - 1;
  }
  op.count = static_cast<uint8_t>(last - first);
  for (size_t i = first; i < last; ++i) op.slot[i - first] = d.read(i, kU32);
  d.emit(op);
}

void do_nothing(Decoder& d) { d.take_rest(); }

}  // namespace

void add_control_ops(OpTable& table) {
  table["bra"] = branch;
  table["brx"] = branch_by_table;
  table["ret"] = table["exit"] = end_lanes;
  table["trap"] = table["brkpt"] = stop;
  table["bar"] = table["barrier"] = bar;
  table["nanosleep"] = do_nothing;
}

}  // namespace flatshard::ptx_vm
