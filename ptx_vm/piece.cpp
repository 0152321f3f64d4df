#include "ptx_vm/piece.h"

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {

Piece piece_of(const void* data, size_t bytes) {
  return {static_cast<unsigned char*>(const_cast<void*>(data)), bytes, bytes};
}

std::string name_of(const Piece& p) {
  return p.home() ? describe_address(reinterpret_cast<uint64_t>(p.data)) : "host memory";
}

void check_range(const Piece& p, const char* what) {
  const Allocation* a = p.home();
  check(p.width <= p.pitch || p.height <= 1, what, " of rows of ", p.width, " bytes, ", p.pitch, " apart");
  if (!a) return;
  const uint64_t offset = reinterpret_cast<uint64_t>(p.data) - a->begin;
  check(a->is_live, what, " touches ", a->name, ", which has been freed");
  check(p.extent() <= a->bytes - offset, what, " of ", p.extent(), " bytes from byte ", offset, " of ",
        a->name);
}

void touch(const Piece& p, Past& past, bool writes) {
  Allocation* a = p.home();
  if (!a || !p.bytes()) return;
  if (!a->is_live)
    report_operation(FindingKind::use_after_free, past.now().what,
                     str("touches ", name_of(p), ", which has been freed"));
  if (!options().finds_races) return;
  if (!past.holds(a->made_by))
    report_operation(FindingKind::stream_race, past.now().what,
                     str("nothing orders it after the allocation of ", a->name));
  for (size_t i = 0; i < p.height; ++i) {
    const auto address = reinterpret_cast<uint64_t>(p.row(i));
    a->races.access(past, address, a->shadow_offset(address), p.width, writes);
  }
}

}  // namespace flatshard::ptx_vm
