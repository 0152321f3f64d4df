#include "ptx_vm/warp.h"

#include <algorithm>
#include <string>

#include "ptx_vm/grid.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kPollTurn = 64;  // of a group, when the whole launch seems to poll

// Moves lanes to an instruction and joins the group there; a waiting group checks again.
void place(Warp& warp, uint32_t pc, uint32_t mask, bool waits = false) {
  if (!mask) return;
  const auto at = std::lower_bound(warp.groups.begin(), warp.groups.end(), pc,
                                   [](const Group& g, uint32_t where) { return g.pc < where; });
  if (at != warp.groups.end() && at->pc == pc) {
    at->mask |= mask;
    at->waits = false;
  } else {
    warp.groups.insert(at, {pc, mask, waits});
  }
}

Group take_group(Warp& warp, size_t index) {
  const Group group = warp.groups[index];
  warp.groups.erase(warp.groups.begin() + static_cast<ptrdiff_t>(index));
  return group;
}

uint32_t block_lanes(const Warp& warp) {
  const uint64_t threads = warp.block->launch->block.count() - static_cast<uint64_t>(warp.index) * kLanes;
  return threads >= kLanes ? kAllLanes : (1u << threads) - 1;
}

// Every live lane waits for lanes that will never arrive.
[[noreturn]] void report_stuck(Warp& warp) {
  const Group& group = warp.groups.front();
  const Kernel& kernel = warp.block->kernel();
  warp.current = group.pc;
  const int lane = std::countr_zero(group.mask);
  if (kernel.code[group.pc].flow == Flow::barrier)
    report(FindingKind::divergent_barrier, warp, lane,
           str("only lanes ", std::hex, group.mask, " of the warp's ", block_lanes(warp),
               " reached the barrier"));
  if (kernel.code[group.pc].flow == Flow::whole_warp)
    report(FindingKind::divergent_warp, warp, lane,
           str("only lanes ", std::hex, group.mask, " of the warp execute this together, must be all 32"));
  std::string others;
  for (const Group& other : warp.groups)
    if (other.pc != group.pc)
      others += str("; lanes ", std::hex, other.mask, " wait at ", kernel.where(other.pc));
  const uint32_t named = warp.lanes<uint32_t>(kernel.code[group.pc].slot[5])[lane];
  report(FindingKind::shuffle_mask, warp, lane,
         str("mask ", std::hex, named, " names lanes ", named & warp.live & ~group.mask, " that never arrive",
             others));
}

// Lanes that execute together with the lanes of their masks: complete masks continue, others wait.
void run_with_others(Warp& warp, const Op& op, uint32_t pc, uint32_t active) {
  uint32_t left = active;
  while (left) {
    const int lane = std::countr_zero(left);
    const uint32_t* named = warp.lanes<uint32_t>(op.slot[5]);
    const uint32_t mask = named[lane];
    if (!(mask >> lane & 1))
      report(FindingKind::shuffle_mask, warp, lane,
             str("mask ", std::hex, mask, " does not name the lane itself"));
    uint32_t same = 0;
    for_each_lane(left, [&](int l) { same |= static_cast<uint32_t>(named[l] == mask) << l; });
    same &= mask;
    if (mask & warp.live & ~same) {
      place(warp, pc, same, true);
    } else {
      warp.active = same;
      op.run(warp, op);
      place(warp, pc + 1, same);
    }
    left &= ~same;
  }
}

// Most ops touch no register that a product may have in flight.
inline void note_registers(Warp& warp, const Op& op) {
  if (op.touches_product) [[unlikely]]
    warp.block->products[static_cast<size_t>(warp.index)].access(warp, op);
}

void branch_by_table(Warp& warp, const Op& op, uint32_t active) {
  const std::vector<uint32_t>& table = warp.block->kernel().branch_tables[static_cast<size_t>(op.immediate)];
  const uint32_t* index = warp.lanes<uint32_t>(op.slot[0]);
  for_each_lane(active, [&](int lane) {
    if (index[lane] >= table.size())
      report(FindingKind::out_of_bounds, warp, lane,
             str("branches to entry ", index[lane], " of a table of ", table.size()));
    place(warp, table[index[lane]], 1u << lane);
  });
}

void exit_lanes(Warp& warp, uint32_t mask) {
  warp.live &= ~mask;
  for (Group& group : warp.groups) group.waits = false;  // perhaps for these
  if (warp.live) return;
  warp.state = Warp::State::ended;
  warp.block->warp_ended(warp);
}

// Runs one group until it diverges, waits, reaches another group, or has used its budget.
template <bool kCounts>
void run_group(Warp& warp, size_t index, uint64_t until) {
  const Op* code = warp.block->kernel().code.data();
  const Group group = take_group(warp, index);
  const uint32_t below = index > 0 ? warp.groups[index - 1].pc + 1 : 0;  // no group is in [below, above)
  const uint32_t above = index < warp.groups.size() ? warp.groups[index].pc : kNowhere;
  uint32_t pc = group.pc;
  while (pc < above && pc >= below && warp.executed < until) {
    const Op& op = code[pc];
    uint32_t active = group.mask;
    if (op.guard != kNowhere)
      active &= op.guard_negated ? ~warp.predicate(op.guard) : warp.predicate(op.guard);
    ++warp.executed;
    if constexpr (kCounts) ++warp.block->launch->kernel_counts->ops[pc].executed;
    if (op.flow == Flow::next) [[likely]] {
      if (active) {
        warp.active = active;
        warp.current = pc;
        note_registers(warp, op);
        op.run(warp, op);
      }
      ++pc;
      continue;
    }
    if (!active) {
      ++pc;
      continue;
    }
    const uint32_t rest = group.mask & ~active;
    warp.active = active;
    warp.current = pc;
    note_registers(warp, op);
    switch (op.flow) {
      case Flow::branch:
        if (!rest) {
          pc = static_cast<uint32_t>(op.immediate);
          continue;
        }
        place(warp, static_cast<uint32_t>(op.immediate), active);
        return place(warp, pc + 1, rest);
      case Flow::branch_table:
        place(warp, pc + 1, rest);
        return branch_by_table(warp, op, active);
      case Flow::exit:
        place(warp, pc + 1, rest);
        return exit_lanes(warp, active);
      case Flow::with_others:
        if (!rest && active == kAllLanes) [[likely]] {
          const uint32_t* named = warp.lanes<uint32_t>(op.slot[5]);
          if (std::all_of(named, named + kLanes, [](uint32_t mask) { return mask == kAllLanes; })) {
            warp.active = active;
            op.run(warp, op);
            ++pc;
            continue;
          }
        }
        place(warp, pc + 1, rest);
        return run_with_others(warp, op, pc, active);
      case Flow::whole_warp:
        if (active == kAllLanes) [[likely]] {
          warp.active = active;
          op.run(warp, op);
          ++pc;
          if (warp.state == Warp::State::ready) continue;
          return place(warp, pc, active);
        }
        place(warp, pc + 1, rest);
        return place(warp, pc, active, true);
      case Flow::barrier:
        place(warp, pc + 1, rest);
        if (active != block_lanes(warp)) return place(warp, pc, active, true);
        place(warp, pc + 1, active);
        warp.active = active;
        return op.run(warp, op);
      case Flow::poll:
        warp.active = active;
        op.run(warp, op);
        place(warp, pc + 1, active);
        return place(warp, pc + 1, rest);
      case Flow::next:
        break;
    }
  }
  place(warp, pc, group.mask);
}

}  // namespace

void run(Warp& warp, uint64_t budget, bool polls) {
  const uint64_t until = warp.executed + budget;
  warp.polls = false;
  while (warp.state == Warp::State::ready && warp.executed < until && !warp.polls) {
    size_t runnable = 0, first = warp.groups.size();
    for (size_t g = warp.groups.size(); g-- > 0;)
      if (!warp.groups[g].waits) first = g, ++runnable;
    if (runnable == 0) report_stuck(warp);
    // Lanes that poll at a low instruction must not starve the lanes that end their wait.
    size_t chosen = first;
    if (polls && runnable > 1) do
        chosen = warp.poll_turn++ % warp.groups.size();
      while (warp.groups[chosen].waits);
    const uint64_t stop = polls ? std::min(until, warp.executed + kPollTurn) : until;
    warp.block->launch->counts ? run_group<true>(warp, chosen, stop) : run_group<false>(warp, chosen, stop);
  }
}

}  // namespace flatshard::ptx_vm
