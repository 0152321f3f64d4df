#pragma once
// Loops over the lanes of a warp for handlers: one result per active lane. A result may share the slot of an
// operand but never overlaps one partially, so the loops can be vectorized.

#include "ptx_vm/warp.h"

namespace flatshard::ptx_vm {

// Computes result[lane] = f(lane) for active lanes. f is called for all lanes and must not trap.
template <class T, class F>
inline void write_lanes(const Warp& warp, uint32_t slot, F&& f) {
  T* result = warp.lanes<T>(slot);
  const uint32_t active = warp.active;
  if (active == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = f(lane);
  } else {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = active >> lane & 1 ? f(lane) : result[lane];
  }
}

template <class R, class T, class F>
void unary(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[1]);
  write_lanes<R>(warp, op.slot[0], [&](int l) { return static_cast<R>(F{}(a[l])); });
}

template <class R, class T, class F>
void binary(Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[1]), *b = warp.lanes<T>(op.slot[2]);
  write_lanes<R>(warp, op.slot[0], [&](int l) { return static_cast<R>(F{}(a[l], b[l])); });
}

// Computes a ternary op. The third operand has the result's type, as in mad.wide.
template <class R, class T, class F>
void ternary(Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[1]), *b = warp.lanes<T>(op.slot[2]);
  const R* c = warp.lanes<R>(op.slot[3]);
  write_lanes<R>(warp, op.slot[0], [&](int l) { return static_cast<R>(F{}(a[l], b[l], c[l])); });
}

}  // namespace flatshard::ptx_vm
