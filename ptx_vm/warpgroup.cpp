#include "ptx_vm/warpgroup.h"

#include <algorithm>
#include <bit>

#include "ptx_vm/grid.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kWarps = 4;
constexpr uint32_t kGranule = 64;  // no two registers of 32 bits share one

bool uses_same_accumulators(const ProductForm& a, const ProductForm& b) { return &a == &b || a.d == b.d; }

bool holds(const std::vector<uint32_t>& slots, uint32_t slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

int first_lane(const Warp& warp) { return warp.active ? std::countr_zero(warp.active) : 0; }

}  // namespace

Products::Register& Products::at(uint32_t slot) {
  const size_t index = slot / kGranule;
  if (index >= registers_.size()) registers_.resize(index + 1);
  return registers_[index];
}

void Products::report_use(Warp& warp, uint32_t slot) const {
  const Kernel& kernel = warp.block->kernel();
  const auto user = std::find_if(in_flight_.rbegin(), in_flight_.rend(), [&](const Product& p) {
    return holds(p.form->d, slot) || holds(p.form->a, slot);
  });
  report(FindingKind::in_flight_register, warp, first_lane(warp),
         str("accesses a register that the product at ", kernel.where(user->op),
             holds(user->form->d, slot) ? " accumulates in" : " reads",
             ", before wgmma.wait_group has waited for it"));
}

void Products::begin(Warp& warp, const ProductForm& form) {
  // Products of the same shape may share accumulators; other registers in flight must not be accessed.
  const auto same =
      static_cast<uint32_t>(std::count_if(in_flight_.begin(), in_flight_.end(), [&](const Product& p) {
        return uses_same_accumulators(*p.form, form);
      }));
  const auto check_fence = [&](const Register& r) {
    if (r.touched > fenced_)
      report(
          FindingKind::missing_wgmma_fence, warp, 0,
          "the warp has used its accumulators or its A in registers since its last wgmma.fence, or has had "
          "none");
  };
  for (const uint32_t slot : form.d) {
    Register& r = at(slot);
    if (r.written != same || r.read) report_use(warp, slot);
    check_fence(r);
    ++r.written;
  }
  for (const uint32_t slot : form.a) {
    Register& r = at(slot);
    if (r.written) report_use(warp, slot);
    check_fence(r);
    ++r.read;
  }
  in_flight_.push_back({warp.current, &form});
}

void Products::commit() {
  size_t open = in_flight_.size();
  for (const size_t count : groups_) open -= count;
  groups_.push_back(open);
}

void Products::retire(const Product& product) {
  for (const uint32_t slot : product.form->d) --at(slot).written;
  for (const uint32_t slot : product.form->a) --at(slot).read;
}

void Products::wait(Warp& warp, size_t groups) {
  AsyncQueue& queue = warp.block->launch->async;
  while (groups_.size() > groups) {
    const size_t count = groups_.front();
    groups_.pop_front();
    for (size_t i = 0; i < count; ++i) {
      queue.finish(works_[i]);
      learn(warp, *works_[i]);
      retire(in_flight_[i]);
    }
    works_.erase(works_.begin(), works_.begin() + static_cast<ptrdiff_t>(count));
    in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<ptrdiff_t>(count));
  }
}

void Products::access(Warp& warp, const Op& op) {
  ++clock_;
  for (const uint32_t slot : warp.block->kernel().product_registers.at(op.index)) {
    Register& r = at(slot);
    if (r.written || r.read) report_use(warp, slot);
    r.touched = clock_;
  }
}

void Products::end(Warp& warp) {
  if (line.last) warp.block->launch->async.finish(line.last);
}

void Warpgroup::step(Warp& warp, std::array<uint64_t, 3> same) {
  Block& block = *warp.block;
  const int first_warp = warp.index / kWarps * kWarps;
  if (first_warp + kWarps > static_cast<int>(block.warps.size()))
    report(
        FindingKind::divergent_warpgroup, warp, 0,
        str("a warpgroup is four warps, starting at a multiple of four; the block has ", block.warps.size()));
  uint64_t& done = done_[static_cast<size_t>(warp.index - first_warp)];
  if (done - first_ == steps_.size()) steps_.push_back({warp.current, same, warp.index});
  const Step& step = steps_[done - first_];
  if (step.op != warp.current)
    report(
        FindingKind::divergent_warpgroup, warp, 0,
        str("warp ", step.warp, " of the same warpgroup is at ", block.kernel().where(step.op), " instead"));
  if (step.same != same)
    report(FindingKind::divergent_warpgroup, warp, 0,
           str("warp ", step.warp, " of the same warpgroup has different operands here"));
  ++done;
  for (int w = first_warp; w < first_warp + kWarps; ++w)
    if (block.warps[static_cast<size_t>(w)].state == Warp::State::ended &&
        done_[static_cast<size_t>(w - first_warp)] < done)
      report(FindingKind::divergent_warpgroup, warp, 0,
             str("warp ", w, " of the same warpgroup has exited without reaching this instruction"));
  while (*std::min_element(done_.begin(), done_.end()) > first_) {
    steps_.pop_front();
    ++first_;
  }
}

void end_of_warp(Warp& warp) {
  Block& block = *warp.block;
  if (block.warpgroups.empty()) return;
  block.products[static_cast<size_t>(warp.index)].end(warp);
  const Warpgroup& group = block.warpgroups[static_cast<size_t>(warp.index / kWarps)];
  const uint64_t done = group.done_[static_cast<size_t>(warp.index % kWarps)] - group.first_;
  if (done == group.steps_.size()) return;
  Warp& other = block.warps[static_cast<size_t>(group.steps_[done].warp)];
  other.current = group.steps_[done].op;
  report(FindingKind::divergent_warpgroup, other, 0,
         str("warp ", warp.index, " of the same warpgroup exits without reaching this instruction"));
}

}  // namespace flatshard::ptx_vm
