#include "runtime/param.h"

#include <utility>

namespace flatshard {

ParamId ParamList::add(ParamSpec spec) {
  for (const ParamSpec& other : specs_)
    check(other.name != spec.name, "parameter ", spec.name, " is declared twice");
  specs_.push_back(std::move(spec));
  return {static_cast<int>(specs_.size()) - 1};
}

namespace {

template <class View>
Tensor joined_in(const View& view, std::span<const ParamId> ids) {
  Tensor all = view[ids.front()];
  if (all.empty()) return all;
  for (const ParamId id : ids.subspan(1)) {
    const Tensor& next = view[id];
    const bool adjacent = !all.data || static_cast<char*>(all.data) + all.bytes() == next.data;
    const bool vectors = all.shape.rank() == 1 && next.shape.rank() == 1;
    check(adjacent && (vectors || next.shape[1] == all.shape[1]), "parameters ", ids.front().index, " to ",
          id.index, " are not one matrix in memory");
    all.shape = vectors ? Shape{all.size() + next.size()} : Shape{all.shape[0] + next.shape[0], all.shape[1]};
  }
  return all;
}

}  // namespace

Tensor ParamView::joined(std::span<const ParamId> ids) const { return joined_in(*this, ids); }
Tensor GradView::joined(std::span<const ParamId> ids) const { return joined_in(*this, ids); }

bool GradView::accumulates(std::span<const ParamId> ids) const {
  bool any = false, all = true;
  for (const ParamId id : ids) {
    Gradient& gradient = of(id);
    if (gradient.tensor.empty()) continue;
    const bool written = std::exchange(gradient.written, true);
    any = any || written;
    all = all && written;
  }
  check(!any || all, "some gradients of one product have been written, others have not");
  return any;
}

int64_t ParamList::parameter_count() const {
  int64_t count = 0;
  for (const ParamSpec& spec : specs_) count += spec.parameter_count();
  return count;
}

}  // namespace flatshard
