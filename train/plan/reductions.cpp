#include "train/plan/reductions.h"

#include <iomanip>
#include <sstream>

#include "runtime/text.h"

namespace flatshard {
namespace {

struct Way {
  Reduction reduction;
  const char* bits;
};
constexpr Way kWays[] = {{Reduction::exact, "bit-identical on any power-of-two number of ranks"},
                         {Reduction::sequential, "bit-identical for a given number of ranks"},
                         {Reduction::native, "summed in the order of the communication library"}};

// The library's sums have one level, also where the run in use has two.
RunPlan plan_with(Reduction reduction, RunSetup setup, int rank) {
  setup.units.reduction = reduction;
  setup.may_use_two_levels = setup.may_use_two_levels && reduction != Reduction::native;
  return plan_run(setup, rank);
}

}  // namespace

ReductionText describe_reductions(const RunSetup& setup, const RunPlan& in_use, int rank) {
  std::ostringstream out;
  std::string others;
  out << "reduction of gradients; memory, and bytes received per step, for each parallel.reduction:\n";
  for (const Way& way : kWays) {
    out << "  " << std::left << std::setw(12) << name_of(way.reduction) << std::right;
    if (way.reduction == Reduction::native && setup.units.wire != DType::f32) {
      out << "  requires precision.reduce = \"fp32\", not \"" << setup.config.precision.reduce << "\"\n";
      continue;
    }
    if (way.reduction != Reduction::exact && setup.expert_ranks > 1) {
      out << "  requires parallel.expert_ranks = 1, not " << setup.expert_ranks << '\n';
      continue;
    }
    const bool used = way.reduction == setup.units.reduction;
    const RunPlan plan = used ? in_use : plan_with(way.reduction, setup, rank);
    if (setup.units.reduction == Reduction::exact && plan.memory_bytes < in_use.memory_bytes)
      others +=
          str(", ", human_bytes(plan.memory_bytes), " with --parallel.reduction=", name_of(way.reduction));
    out << std::setw(16) << plan.memory_bytes << " B " << std::setw(17)
        << with_commas(plan.units.all.traffic.reduced.all()) << " B  " << way.bits
        << (used ? " (in use)" : "") << '\n';
  }
  return {.table = std::move(out).str(),
          .exact = others.empty() ? ""
                                  : str("memory    ", human_bytes(in_use.memory_bytes), " on rank ", rank,
                                        " with exact sums of gradients", others, '\n')};
}

int64_t cost_of_exact_sums(const RunSetup& setup, const RunPlan& in_use, int rank) {
  if (setup.units.reduction != Reduction::exact || setup.expert_ranks > 1) return 0;
  return in_use.memory_bytes - plan_with(Reduction::sequential, setup, rank).memory_bytes;
}

}  // namespace flatshard
