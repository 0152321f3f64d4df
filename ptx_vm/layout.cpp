// The addresses of the variables of a function: parameters, shared memory, local memory.

#include <algorithm>
#include <set>

#include "ptx_vm/decode.h"
#include "ptx_vm/memory.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kSharedGap = 16;  // between static shared arrays, so that an overrun is found

// Every name in the operands of a function.
std::set<std::string_view> names_in(const Function& function) {
  std::set<std::string_view> names;
  const auto add = [&](const Operand& o, auto&& self) -> void {
    if (!o.name.empty()) names.insert(o.name);
    for (const Operand& part : o.parts) self(part, self);
  };
  for (const Statement& s : function.body)
    if (const auto* i = std::get_if<Instruction>(&s))
      for (const Operand& o : i->operands) add(o, add);
  return names;
}

}  // namespace

void Decoder::place_shared(const Variable& v) {
  const auto end = static_cast<uint32_t>(aligned(kernel_.static_shared_bytes, v.align));
  if (kernel_.static_shared_bytes) {
    const auto begin = static_cast<uint32_t>(aligned(kernel_.static_shared_bytes + kSharedGap, v.align));
    kernel_.shared_gaps.emplace_back(kernel_.static_shared_bytes, begin);
    kernel_.static_shared_bytes = begin;
  } else {
    kernel_.static_shared_bytes = end;
  }
  variables_[v.name] = {Space::shared, kSharedBase + kernel_.static_shared_bytes};
  kernel_.static_shared_bytes += static_cast<uint32_t>(v.bytes);
}

void Decoder::place_local(const Variable& v) {
  kernel_.local_bytes = static_cast<uint32_t>(aligned(kernel_.local_bytes, v.align));
  variables_[v.name] = {Space::local, kLocalBase + kernel_.local_bytes};
  kernel_.local_bytes += static_cast<uint32_t>(v.bytes);
}

void Decoder::lay_out_variables() {
  for (const Variable& p : function_.parameters) {
    kernel_.parameter_bytes = static_cast<uint32_t>(aligned(kernel_.parameter_bytes, p.align));
    kernel_.parameters.push_back({kernel_.parameter_bytes, static_cast<uint32_t>(p.bytes)});
    variables_[p.name] = {Space::param, kernel_.parameter_bytes};
    kernel_.parameter_bytes += static_cast<uint32_t>(p.bytes);
  }
  const std::set<std::string_view> used = names_in(function_);
  for (const Variable& v : module_.variables)
    if (v.space == "shared" && !v.is_external && used.contains(v.name)) place_shared(v);
  for (const Statement& s : function_.body)
    if (const auto* v = std::get_if<Variable>(&s)) v->space == "shared" ? place_shared(*v) : place_local(*v);
  // Dynamic shared memory follows: all external arrays begin at one place.
  uint64_t align = kernel_.dynamic_shared_align;
  for (const Variable& v : module_.variables)
    if (v.space == "shared" && v.is_external && used.contains(v.name)) align = std::max(align, v.align);
  kernel_.static_shared_bytes = static_cast<uint32_t>(aligned(kernel_.static_shared_bytes, align));
  if (kernel_.shared_shift) {
    kernel_.shared_gaps.emplace_back(kernel_.static_shared_bytes,
                                     kernel_.static_shared_bytes + kernel_.shared_shift);
    kernel_.static_shared_bytes += kernel_.shared_shift;
  }
  for (const Variable& v : module_.variables)
    if (v.space == "shared" && v.is_external)
      variables_[v.name] = {Space::shared, kSharedBase + kernel_.static_shared_bytes};
}

}  // namespace flatshard::ptx_vm
