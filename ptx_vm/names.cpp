// Names in PTX: types, and demangled functions.

#include <cstdlib>
#include <cxxabi.h>

#include "ptx_vm/decode.h"

namespace flatshard::ptx_vm {

std::string demangled(std::string_view name) {
  int status = 0;
  char* text = abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status);
  std::string result(status == 0 ? text : std::string(name).c_str());
  std::free(text);
  return result;
}

Type type_of(std::string_view name) {
  const auto bytes = static_cast<uint32_t>(bytes_of_type(name));
  using Kind = Type::Kind;
  if (name == "pred") return {Kind::pred, 0};
  if (!bytes) return {};
  if (name.ends_with("x2")) return {name[0] == 'b' ? Kind::bf_x2 : Kind::f_x2, bytes};
  switch (name[0]) {
    case 'u':
      return {Kind::unsigned_int, bytes};
    case 's':
      return {Kind::signed_int, bytes};
    case 'f':
      return {Kind::f, bytes};
    default:
      return {name.starts_with("bf") ? Kind::bf : Kind::bits, bytes};
  }
}

}  // namespace flatshard::ptx_vm
