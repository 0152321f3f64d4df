// cvt: between integers (.sat), floats and integers (.rni .rzi .rmi .rpi, saturating), and floats (.rn .rz);
// cvt.rn.bf16x2.f32 d, a, b packs a into the upper half.

#include <algorithm>

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/numbers.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

double rounded(double x, Rounding round) {
  switch (round) {
    case Rounding::nearest:
      return std::nearbyint(x);
    case Rounding::zero:
      return std::trunc(x);
    case Rounding::down:
      return std::floor(x);
    case Rounding::up:
      return std::ceil(x);
  }
  return x;
}

template <class T>
inline constexpr bool kIsFloat = !std::is_integral_v<T>;

template <class T>
double exact(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<double>(to_float(x));
}

// x as To, rounded to nearest even: the common case, and vectorised.
template <class To, class From>
To nearest(From x) {
  if constexpr (std::is_same_v<To, double>) {
    if constexpr (kIsFloat<From>)
      return exact(x);
    else
      return static_cast<double>(x);
  } else if constexpr (!kIsFloat<From>) {
    if constexpr (std::is_same_v<To, float>)
      return static_cast<float>(x);
    else
      return sum_to<To>(static_cast<double>(x), 0);  // 32 bits fit into double
  } else if constexpr (std::is_same_v<From, double>) {
    if constexpr (std::is_same_v<To, float>)
      return canonical(static_cast<float>(x));
    else
      return sum_to<To>(x, 0);
  } else {
    return from_float<To>(std::is_same_v<To, float> ? canonical(to_float(x)) : to_float(x));
  }
}

template <class To, class From>
struct Convert {
  To operator()(From x) const {
    if constexpr (kIsFloat<To>)
      return nearest<To>(x);
    else if constexpr (kIsFloat<From>)
      return saturated<To>(rounded(exact(x), Rounding::zero));
    else
      return static_cast<To>(x);
  }
};

// 8-bit values live in 16-bit registers or wider; the register's type is what the lanes are read and written
// as.
template <class T>
using Stored =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <class To, class From>
void convert(Warp& warp, const Op& op) {
  const Stored<From>* a = warp.lanes<Stored<From>>(op.slot[1]);
  write_lanes<Stored<To>>(warp, op.slot[0], [&](int l) {
    return static_cast<Stored<To>>(Convert<To, From>{}(static_cast<From>(a[l])));
  });
}

// Everything but the common case: a rounding, flushing, clamping.
template <class To, class From>
void convert_with_care(Warp& warp, const Op& op) {
  const auto round = static_cast<Rounding>(op.count);
  const bool saturates = op.immediate & 1, to_integral = op.immediate & 2, flushes = op.immediate & 4;
  const Stored<From>* a = warp.lanes<Stored<From>>(op.slot[1]);
  Stored<To>* result = warp.lanes<Stored<To>>(op.slot[0]);
  for_each_lane(warp.active, [&](int l) {
    const auto x = static_cast<From>(a[l]);
    if constexpr (kIsFloat<From>) {
      double value = exact(x);
      if (flushes && std::abs(value) < 0x1p-126) value = std::copysign(0.0, value);
      if (!kIsFloat<To> || to_integral) value = rounded(value, round);
      if constexpr (kIsFloat<To>) {
        if (saturates) value = value > 0 ? std::min(value, 1.0) : 0.0;
        if constexpr (std::is_same_v<To, float>)
          result[l] = canonical(directed(static_cast<float>(value), value, 0, round));
        else
          result[l] = nearest<To>(value);
      } else {
        result[l] = static_cast<Stored<To>>(saturated<To>(value));
      }
    } else if constexpr (kIsFloat<To>) {
      if constexpr (std::is_same_v<To, float> && sizeof(From) < 8)
        result[l] = directed(static_cast<float>(x), static_cast<double>(x), 0, round);
      else
        result[l] = nearest<To>(x);
    } else {
      constexpr __int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
      const __int128 wide = x;
      result[l] = static_cast<Stored<To>>(wide < low ? low : wide > high ? high : wide);
    }
  });
}

struct Handlers {
  Handler plain = nullptr, careful = nullptr;
};

// f.operator()<T>() for the C++ type of a PTX type.
template <class F>
Handlers visit(Type type, F&& f) {
  using Kind = Type::Kind;
  if (type.is_f32()) return f.template operator()<float>();
  if (type.is_f64()) return f.template operator()<double>();
  if (type.is(Kind::f, 2)) return f.template operator()<Half>();
  if (type.kind == Kind::bf) return f.template operator()<BFloat>();
  if (!type.is_integer()) return {};
  switch (type.bytes) {
    case 1:
      return type.is_signed() ? f.template operator()<int8_t>() : f.template operator()<uint8_t>();
    case 2:
      return type.is_signed() ? f.template operator()<int16_t>() : f.template operator()<uint16_t>();
    case 4:
      return type.is_signed() ? f.template operator()<int32_t>() : f.template operator()<uint32_t>();
    default:
      return type.is_signed() ? f.template operator()<int64_t>() : f.template operator()<uint64_t>();
  }
}

template <class To>
Handlers from_type(Type from) {
  return visit(from, []<class From>() { return Handlers{convert<To, From>, convert_with_care<To, From>}; });
}

// The low `To` of a wider register, or a narrow value in a wider register.
template <class To, class From>
void resize(Warp& warp, const Op& op) {
  const From* a = warp.lanes<From>(op.slot[1]);
  write_lanes<To>(warp, op.slot[0], [&](int l) { return static_cast<To>(a[l]); });
}

template <class From>
Handler resize_to(uint32_t bytes) {
  return bytes == 2 ? resize<uint16_t, From> : bytes == 4 ? resize<uint32_t, From> : resize<uint64_t, From>;
}

void emit_resize(Decoder& d, uint32_t to_slot, uint32_t to, uint32_t from_slot, uint32_t from,
                 bool is_signed) {
  Op op;
  if (is_signed)
    op.run = from == 2 ? resize_to<int16_t>(to) : from == 4 ? resize_to<int32_t>(to) : resize_to<int64_t>(to);
  else
    op.run = from == 2   ? resize_to<uint16_t>(to)
             : from == 4 ? resize_to<uint32_t>(to)
                         : resize_to<uint64_t>(to);
  op.slot[0] = to_slot;
  op.slot[1] = from_slot;
  d.emit(op);
}

template <class T>
void pack_pair(Warp& warp, const Op& op) {
  const float *high = warp.lanes<float>(op.slot[1]), *low = warp.lanes<float>(op.slot[2]);
  const bool relu = op.count;
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) {
    const auto half = [&](float x) {
      return static_cast<uint32_t>(from_float<T>(relu && x < 0 ? 0.0f : x).bits);
    };
    return half(high[l]) << 16 | half(low[l]);
  });
}

void cvt_pair(Decoder& d, Type to, std::string_view mode) {
  const Type from = d.take_type();
  if (!from.is_f32() || mode != "rn") d.wrong("only .rn from .f32 is supported");
  Op op;
  op.run = to.kind == Type::Kind::bf_x2 ? pack_pair<BFloat> : pack_pair<Half>;
  op.count = d.take("relu");
  op.slot = {d.result(0, to), d.read(1, from), d.read(2, from)};
  d.emit(op);
}

void cvt(Decoder& d) {
  const std::string_view to_nearest_int = d.take_any({"rni", "rzi", "rmi", "rpi"});
  const std::string_view mode =
      to_nearest_int.empty() ? d.take_any({"rn", "rz", "rm", "rp"}) : to_nearest_int;
  const bool flushes = d.take("ftz"), saturates = d.take("sat");
  const Type to = d.take_type();
  if (to.kind == Type::Kind::bf_x2 || to.kind == Type::Kind::f_x2) return cvt_pair(d, to, mode);
  const Type from = d.take_type();
  const Handlers handlers = visit(to, [&]<class To>() { return from_type<To>(from); });
  if (!handlers.plain) d.wrong("does not exist for these types");

  const char letter = mode.empty() ? 'n' : mode[1];
  const Rounding round = letter == 'z'   ? Rounding::zero
                         : letter == 'm' ? Rounding::down
                         : letter == 'p' ? Rounding::up
                                         : Rounding::nearest;
  const bool to_float = !to.is_integer(), from_float = !from.is_integer();
  if (to_float && to.bytes == 2 && round != Rounding::nearest)
    d.wrong("this rounding is not supported for 16 bits");
  const bool is_plain = !flushes && !saturates &&
                        (to_float ? round == Rounding::nearest && to_nearest_int.empty()
                                  : !from_float || round == Rounding::zero);
  Op op;
  op.run = is_plain ? handlers.plain : handlers.careful;
  op.count = static_cast<uint8_t>(round);
  op.immediate = (saturates ? 1 : 0) | (to_nearest_int.empty() ? 0 : 2) | (flushes ? 4 : 0);

  // Registers may be wider than the types.
  const Operand& source = d.operand(1);
  const uint32_t from_bytes = register_bytes(from), to_bytes = register_bytes(to);
  const uint32_t source_width = d.width_of(source.name);
  if (source_width > from_bytes) {
    op.slot[1] = d.temporary(from_bytes);
    emit_resize(d, op.slot[1], from_bytes, d.register_of(source, source_width), source_width, false);
  } else {
    op.slot[1] = d.read(1, from);
  }
  const uint32_t result_width = d.width_of(d.operand(0).name);
  if (result_width <= to_bytes) {
    op.slot[0] = d.result(0, to);
    return d.emit(op);
  }
  op.slot[0] = d.temporary(to_bytes);
  d.emit(op);
  emit_resize(d, d.register_of(d.operand(0), result_width), result_width, op.slot[0], to_bytes,
              to.is_signed());
}

}  // namespace

void add_convert_ops(OpTable& table) { table["cvt"] = cvt; }

}  // namespace flatshard::ptx_vm
