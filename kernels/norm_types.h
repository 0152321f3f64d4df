#pragma once
// The dtypes of a norm: its parameters have the dtype of its rows, or are f32.

#include "runtime/dtype.h"

namespace flatshard {

// Calls f.operator()<T, W>() for rows in T and parameters in W.
template <class F>
void visit_norm(DType rows, DType parameters, F&& f) {
  visit_float(rows, [&]<class T>() {
    if (parameters == rows)
      f.template operator()<T, T>();
    else
      f.template operator()<T, float>();
  });
}

}  // namespace flatshard
