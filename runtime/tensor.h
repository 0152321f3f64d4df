#pragma once
// A tensor is a typed, shaped, non-owning pointer: contiguous, row-major, at most five dimensions, no
// strides. An Arena or a Memory owns the memory; tensors are passed by value. In plan mode `data` is null.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace flatshard {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t size() const { return size_; }  // the product; 1 for rank 0
  // Negative indices count from the end: shape[-1] is the last dimension.
  int64_t operator[](int i) const {
    const int at = i < 0 ? i + rank_ : i;
    check(at >= 0 && at < rank_, "dimension ", i, " is outside a shape of rank ", rank_);
    return dims_[at];
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  int64_t size_ = 1;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // (2, 3)

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape{0};
  Device device;

  int64_t size() const { return shape.size(); }
  int64_t bytes() const { return size() * size_of(dtype); }
  bool empty() const { return size() == 0; }
  // The product of all dimensions but the last: the tensor as (rows, last).
  int64_t rows() const { return shape[-1] == 0 ? 0 : size() / shape[-1]; }

  template <class T>
  T* as() const {
    check(dtype == dtype_of<T>, "tensor ", shape, " holds ", dtype, " but is read as ", dtype_of<T>);
    return static_cast<T*>(data);
  }

  // The same elements in another shape.
  Tensor view(const Shape& other) const;
  // The first elements, in a shape that has at most as many.
  Tensor beginning(const Shape& other) const;
  // Entries [begin, end) of the first dimension.
  Tensor slice(int64_t begin, int64_t end) const;
};

// A tensor over memory that the caller owns.
template <class T>
Tensor tensor_of(T* data, const Shape& shape, Device device = Device::cpu()) {
  return {data, dtype_of<T>, shape, device};
}

}  // namespace flatshard
