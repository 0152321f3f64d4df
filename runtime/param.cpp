#include "runtime/param.h"

#include <utility>

namespace flatshard {

ParamId ParamList::add(ParamSpec spec) {
  for (const ParamSpec& other : specs_)
    check(other.name != spec.name, "parameter ", spec.name, " is declared twice");
  specs_.push_back(std::move(spec));
  return {static_cast<int>(specs_.size()) - 1};
}

int64_t ParamList::element_count() const {
  int64_t count = 0;
  for (const ParamSpec& spec : specs_) count += spec.shape.size();
  return count;
}

}  // namespace flatshard
