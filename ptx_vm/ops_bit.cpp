// and or xor not shl shr shf lop3 bfi bfe brev popc clz bfind prmt

#include <algorithm>
#include <bit>

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"

namespace flatshard::ptx_vm {
namespace {

struct And {
  template <class T>
  T operator()(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) {
    return static_cast<T>(~a);
  }
};
template <class F>
void logic_predicate(Warp& warp, const Op& op) {
  warp.set_predicate(op.slot[0], F{}(warp.predicate(op.slot[1]), warp.predicate(op.slot[2])));
}
void not_predicate(Warp& warp, const Op& op) { warp.set_predicate(op.slot[0], ~warp.predicate(op.slot[1])); }

// Shifts by the width or more shift everything out.
template <class T>
void shift_left(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[1]);
  const uint32_t* n = warp.lanes<uint32_t>(op.slot[2]);
  write_lanes<T>(warp, op.slot[0],
                 [&](int l) { return n[l] < sizeof(T) * 8 ? static_cast<T>(a[l] << n[l]) : T{0}; });
}
template <class T>
void shift_right(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[1]);
  const uint32_t* n = warp.lanes<uint32_t>(op.slot[2]);
  write_lanes<T>(warp, op.slot[0], [&](int l) {
    constexpr uint32_t bits = sizeof(T) * 8;
    return n[l] < bits ? static_cast<T>(a[l] >> n[l]) : static_cast<T>(a[l] < 0 ? -1 : 0);
  });
}

template <bool kLeft, bool kWrap>
void funnel_shift(Warp& warp, const Op& op) {
  const uint32_t *low = warp.lanes<uint32_t>(op.slot[1]), *high = warp.lanes<uint32_t>(op.slot[2]),
                 *n = warp.lanes<uint32_t>(op.slot[3]);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) {
    const uint64_t both = static_cast<uint64_t>(high[l]) << 32 | low[l];
    const uint32_t by = kWrap ? n[l] & 31 : (n[l] < 32 ? n[l] : 32);
    return static_cast<uint32_t>(kLeft ? (both << by) >> 32 : both >> by);
  });
}

void lop3(Warp& warp, const Op& op) {
  const uint32_t *a = warp.lanes<uint32_t>(op.slot[1]), *b = warp.lanes<uint32_t>(op.slot[2]),
                 *c = warp.lanes<uint32_t>(op.slot[3]);
  const auto table = static_cast<uint32_t>(op.immediate);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) {
    uint32_t result = 0;
    for (uint32_t row = 0; row < 8; ++row)
      if (table >> row & 1)
        result |= (row & 4 ? a[l] : ~a[l]) & (row & 2 ? b[l] : ~b[l]) & (row & 1 ? c[l] : ~c[l]);
    return result;
  });
}

template <class T>
T low_bits(uint32_t count) {
  return count >= sizeof(T) * 8 ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}

template <class T>
void insert_field(Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[1]), *b = warp.lanes<T>(op.slot[2]);
  const uint32_t *at = warp.lanes<uint32_t>(op.slot[3]), *length = warp.lanes<uint32_t>(op.slot[4]);
  write_lanes<T>(warp, op.slot[0], [&](int l) {
    const uint32_t begin = at[l] & 255;
    if (begin >= sizeof(T) * 8) return b[l];
    const T mask = static_cast<T>(low_bits<T>(length[l] & 255) << begin);
    return static_cast<T>((static_cast<T>(a[l] << begin) & mask) | (b[l] & ~mask));
  });
}

template <class T>
void extract_field(Warp& warp, const Op& op) {
  using U = std::make_unsigned_t<T>;
  const U* a = warp.lanes<U>(op.slot[1]);
  const uint32_t *at = warp.lanes<uint32_t>(op.slot[2]), *length = warp.lanes<uint32_t>(op.slot[3]);
  write_lanes<U>(warp, op.slot[0], [&](int l) {
    constexpr uint32_t bits = sizeof(T) * 8;
    const uint32_t begin = at[l] & 255, count = length[l] & 255;
    const uint32_t top = begin + count > bits ? bits - 1 : begin + count - 1;  // where the sign stands
    const bool negative = std::is_signed_v<T> && count > 0 && (a[l] >> top & 1);
    const U mask = low_bits<U>(count);
    const U field = begin < bits ? static_cast<U>(a[l] >> begin) & mask : U{0};
    const uint32_t found = begin < bits ? std::min(count, bits - begin) : 0;
    return negative ? static_cast<U>(field | static_cast<U>(~low_bits<U>(found))) : field;
  });
}

struct Reverse {
  template <class T>
  T operator()(T a) {
    T result = 0;
    for (size_t bit = 0; bit < sizeof(T) * 8; ++bit) result = static_cast<T>(result << 1 | (a >> bit & 1));
    return result;
  }
};
struct PopCount {
  template <class T>
  uint32_t operator()(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  uint32_t operator()(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
// The place of the highest bit that is not the sign; all ones when there is none.
template <bool kShiftAmount>
struct FindHighest {
  template <class T>
  uint32_t operator()(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(a < 0 ? ~a : a);
    if (!bits) return 0xffffffffu;
    const auto place = static_cast<uint32_t>(std::bit_width(bits) - 1);
    return kShiftAmount ? static_cast<uint32_t>(sizeof(T) * 8 - 1) - place : place;
  }
};

void permute_bytes(Warp& warp, const Op& op) {
  const uint32_t *a = warp.lanes<uint32_t>(op.slot[1]), *b = warp.lanes<uint32_t>(op.slot[2]),
                 *selector = warp.lanes<uint32_t>(op.slot[3]);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) {
    const uint64_t both = static_cast<uint64_t>(b[l]) << 32 | a[l];
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t pick = selector[l] >> (4 * i) & 15;
      const auto byte = static_cast<uint32_t>(both >> (8 * (pick & 7)) & 255);
      result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return result;
  });
}

// Handlers for 16, 32 and 64 bits.
struct Widths {
  Handler of16, of32, of64;
  Handler operator()(Decoder& d, uint32_t bytes) const {
    Handler handler = bytes == 2 ? of16 : bytes == 4 ? of32 : bytes == 8 ? of64 : nullptr;
    if (!handler) d.wrong("does not exist for this type");
    return handler;
  }
};

void emit(Decoder& d, Handler handler, Type result, std::initializer_list<Type> operands,
          int64_t immediate = 0) {
  Op op;
  op.run = handler;
  op.immediate = immediate;
  op.slot[0] = d.result(0, result);
  size_t i = 1;
  for (const Type type : operands) op.slot[i] = d.read(i, type), ++i;
  d.emit(op);
}

constexpr Type kU32{Type::Kind::unsigned_int, 4};

template <class F>
void logic(Decoder& d) {
  const Type type = d.take_type();
  if (type.kind == Type::Kind::pred) return emit(d, logic_predicate<F>, type, {type, type});
  static const Widths handlers{binary<uint16_t, uint16_t, F>, binary<uint32_t, uint32_t, F>,
                               binary<uint64_t, uint64_t, F>};
  emit(d, handlers(d, type.bytes), type, {type, type});
}

void invert(Decoder& d) {
  const Type type = d.take_type();
  if (type.kind == Type::Kind::pred) return emit(d, not_predicate, type, {type});
  static const Widths handlers{unary<uint16_t, uint16_t, Not>, unary<uint32_t, uint32_t, Not>,
                               unary<uint64_t, uint64_t, Not>};
  emit(d, handlers(d, type.bytes), type, {type});
}

void shift(Decoder& d) {
  const Type type = d.take_type();
  static const Widths left{shift_left<uint16_t>, shift_left<uint32_t>, shift_left<uint64_t>},
      right{shift_right<uint16_t>, shift_right<uint32_t>, shift_right<uint64_t>},
      arithmetic{shift_right<int16_t>, shift_right<int32_t>, shift_right<int64_t>};
  const Widths& handlers = d.base() == "shl" ? left : type.is_signed() ? arithmetic : right;
  emit(d, handlers(d, type.bytes), type, {type, kU32});
}

void funnel(Decoder& d) {
  const bool left = d.take("l"), right = d.take("r"), wraps = d.take("wrap"), clamps = d.take("clamp");
  const Type type = d.take_type();
  if (left == right || wraps == clamps || type.bytes != 4) d.wrong("must be .l or .r, .wrap or .clamp, .b32");
  emit(d,
       left ? (wraps ? funnel_shift<true, true> : funnel_shift<true, false>)
            : (wraps ? funnel_shift<false, true> : funnel_shift<false, false>),
       type, {type, type, type});
}

void logic3(Decoder& d) {
  const Type type = d.take_type();
  emit(d, lop3, type, {type, type, type}, static_cast<int64_t>(d.integer(4)));
}

void insert(Decoder& d) {
  const Type type = d.take_type();
  static const Widths handlers{nullptr, insert_field<uint32_t>, insert_field<uint64_t>};
  emit(d, handlers(d, type.bytes), type, {type, type, kU32, kU32});
}

void extract(Decoder& d) {
  const Type type = d.take_type();
  static const Widths of_unsigned{nullptr, extract_field<uint32_t>, extract_field<uint64_t>},
      of_signed{nullptr, extract_field<int32_t>, extract_field<int64_t>};
  emit(d, (type.is_signed() ? of_signed : of_unsigned)(d, type.bytes), type, {type, kU32, kU32});
}

void reverse(Decoder& d) {
  const Type type = d.take_type();
  static const Widths handlers{nullptr, unary<uint32_t, uint32_t, Reverse>,
                               unary<uint64_t, uint64_t, Reverse>};
  emit(d, handlers(d, type.bytes), type, {type});
}

template <class F>
void count(Decoder& d) {
  const Type type = d.take_type();
  static const Widths handlers{nullptr, unary<uint32_t, uint32_t, F>, unary<uint32_t, uint64_t, F>};
  emit(d, handlers(d, type.bytes), kU32, {type});
}

template <bool kShiftAmount>
Handler highest_handler(Decoder& d, Type type) {
  using F = FindHighest<kShiftAmount>;
  static const Widths of_unsigned{nullptr, unary<uint32_t, uint32_t, F>, unary<uint32_t, uint64_t, F>},
      of_signed{nullptr, unary<uint32_t, int32_t, F>, unary<uint32_t, int64_t, F>};
  return (type.is_signed() ? of_signed : of_unsigned)(d, type.bytes);
}

void find_highest(Decoder& d) {
  const bool shift_amount = d.take("shiftamt");
  const Type type = d.take_type();
  emit(d, shift_amount ? highest_handler<true>(d, type) : highest_handler<false>(d, type), kU32, {type});
}

void permute(Decoder& d) {
  const Type type = d.take_type();
  emit(d, permute_bytes, type, {type, type, type});
}

}  // namespace

void add_bit_ops(OpTable& table) {
  table["and"] = logic<And>;
  table["or"] = logic<Or>;
  table["xor"] = logic<Xor>;
  table["not"] = invert;
  table["shl"] = table["shr"] = shift;
  table["shf"] = funnel;
  table["lop3"] = logic3;
  table["bfi"] = insert;
  table["bfe"] = extract;
  table["brev"] = reverse;
  table["popc"] = count<PopCount>;
  table["clz"] = count<LeadingZeros>;
  table["bfind"] = find_highest;
  table["prmt"] = permute;
}

}  // namespace flatshard::ptx_vm
