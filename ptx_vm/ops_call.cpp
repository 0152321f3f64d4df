// Calls of functions that the machine implements: vprintf and __assertfail. Other calls are expanded
// (expand.h). Parameters are in local memory.

#include <bit>
#include <cstdio>
#include <cstring>

#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

// One lane's view of the arguments of a call.
class LaneMemory {
 public:
  LaneMemory(Warp& warp, int lane) : warp_(warp), lane_(lane) {}

  // At an offset of local memory.
  template <class T>
  T local(uint64_t offset) const {
    const uint64_t size = warp_.block->kernel().local_bytes;
    if (sizeof(T) > size || offset > size - sizeof(T))
      report(FindingKind::out_of_bounds, warp_, lane_,
             str("a call reads byte ", offset, " of the thread's ", size, " bytes of local memory"));
    T value;
    std::memcpy(&value, warp_.local.data() + static_cast<uint64_t>(lane_) * size + offset, sizeof(T));
    return value;
  }
  void set_local(uint64_t offset, int32_t value) const {
    const uint64_t begin = static_cast<uint64_t>(lane_) * warp_.block->kernel().local_bytes + offset;
    std::memcpy(warp_.local.data() + begin, &value, sizeof(value));
    std::memset(warp_.local_state.data() + begin, kWritten, sizeof(value));
  }
  // A string that the program holds.
  std::string text(uint64_t address) const {
    const Allocation* a = heap().find(address);
    if (!a || !a->is_live)
      report(FindingKind::out_of_bounds, warp_, lane_,
             str("a call reads a string at ", describe_address(warp_, address)));
    const auto* begin = reinterpret_cast<const char*>(address);
    return std::string(begin, strnlen(begin, a->end() - address));
  }

 private:
  Warp& warp_;
  int lane_;
};

// Conversions of printf, with consecutive arguments, each aligned to its size.
class Printer {
 public:
  Printer(const LaneMemory& memory, uint64_t arguments) : memory_(memory), at_(arguments) {}

  std::string print(const std::string& format) {
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const size_t begin = i;
      if (format[i++] != '%') {
        out += format[begin];
        continue;
      }
      std::string spec = "%";
      for (; i < format.size() && std::strchr("-+ #0123456789.*hlLzjt", format[i]); ++i)
        spec += format[i] == '*' ? std::to_string(next<int32_t>()) : std::string(1, format[i]);
      if (i == format.size()) return out + spec;
      out += convert(spec, format[i++]);
    }
    return out;
  }
  int arguments() const { return count_; }

 private:
  template <class T>
  T next() {
    at_ = aligned(at_, sizeof(T));
    const T value = memory_.local<T>(at_);
    at_ += sizeof(T);
    ++count_;
    return value;
  }

  std::string convert(std::string spec, char conversion) {
    if (conversion == '%') return "%";
    if (conversion == 's')
      return formatted(spec + 's', memory_.text(next<uint64_t>() & ~kWindowMask).c_str());
    if (std::strchr("aAeEfFgG", conversion)) return formatted(spec + conversion, next<double>());
    if (conversion == 'p') return formatted(spec + 'p', reinterpret_cast<void*>(next<uint64_t>()));
    const bool is_wide = spec.find_first_of("lzjt") != std::string::npos;
    std::erase_if(spec, [](char c) { return std::strchr("lzjt", c) != nullptr; });
    if (is_wide) return formatted(spec + "ll" + conversion, next<long long>());
    return formatted(spec + conversion, next<int32_t>());
  }

  template <class T>
  static std::string formatted(const std::string& spec, T value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, spec.c_str(), value)), ' ');
    std::snprintf(text.data(), text.size() + 1, spec.c_str(), value);
#pragma GCC diagnostic pop
    return text;
  }

  const LaneMemory& memory_;
  uint64_t at_;
  int count_ = 0;
};

// call (count), vprintf, (format, arguments): slots 0 to 2 hold their offsets in local memory.
void print(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const LaneMemory memory(warp, lane);
    const auto arguments = memory.local<uint64_t>(op.slot[2]) & ~kWindowMask;
    Printer printer(memory, arguments - kLocalBase);
    const std::string text = printer.print(memory.text(memory.local<uint64_t>(op.slot[1]) & ~kWindowMask));
    std::fwrite(text.data(), 1, text.size(), stdout);
    memory.set_local(op.slot[0], printer.arguments());
  });
}

// call __assertfail, (message, file, line, function, size)
void assertion_failed(Warp& warp, const Op& op) {
  const int lane = std::countr_zero(warp.active);
  const LaneMemory memory(warp, lane);
  const auto text = [&](uint32_t offset) {
    return memory.text(memory.local<uint64_t>(offset) & ~kWindowMask);
  };
  report(FindingKind::trap, warp, lane,
         str("assertion failed: ", text(op.slot[0]), ", ", text(op.slot[1]), ':',
             memory.local<uint32_t>(op.slot[2]), ", in ", text(op.slot[3])));
}

// Puts the offsets of the call's variables into slots.
void take_offsets(Decoder& d, const std::vector<Operand>& variables, size_t count, uint32_t* slot) {
  if (variables.size() < count) d.wrong("a parameter is missing");
  for (size_t i = 0; i < count; ++i) {
    Space space = Space::generic;
    const uint64_t* address = d.variable(variables[i].name, &space);
    if (!address || space != Space::local)
      d.wrong(str(variables[i].name, " is not a variable of the function"));
    slot[i] = static_cast<uint32_t>(*address - kLocalBase);
  }
}

void call(Decoder& d) {
  d.take("uni");
  const bool has_result = d.operand(0).kind == Operand::Kind::list;
  const std::string_view name = d.operand(has_result ? 1 : 0).name;
  const std::vector<Operand>& arguments = d.operand(has_result ? 2 : 1).parts;
  Op op;
  if (name == "vprintf") {
    op.run = print;
    take_offsets(d, d.operand(0).parts, 1, &op.slot[0]);
    take_offsets(d, arguments, 2, &op.slot[1]);
  } else if (name == "__assertfail") {
    op.run = assertion_failed;
    take_offsets(d, arguments, 4, &op.slot[0]);
  } else {
    d.wrong(str("calls of ", name, " are not supported"));
  }
  d.emit(op);
}

}  // namespace

void add_call_ops(OpTable& table) { table["call"] = call; }

}  // namespace flatshard::ptx_vm
