#include "runtime/tensor.h"

namespace flatshard {

Shape::Shape(std::initializer_list<int64_t> dims) {
  check(dims.size() <= kMaxRank, "a shape has ", dims.size(), " dimensions, must have at most ", kMaxRank);
  for (const int64_t d : dims) {
    check(d >= 0, "dimension ", rank_, " of a shape is ", d, ", must not be negative");
    dims_[rank_++] = d;
    check(!__builtin_mul_overflow(size_, d, &size_), "a shape has more than 2^63 elements");
  }
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ')';
}

Tensor Tensor::view(const Shape& other) const {
  check(other.size() == size(), "a tensor ", shape, " of ", size(), " elements cannot be viewed as ", other);
  return {data, dtype, other, device};
}

Tensor Tensor::beginning(const Shape& other) const {
  check(other.size() <= size(), "a tensor ", shape, " of ", size(), " elements has no room for ", other);
  return {data, dtype, other, device};
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  check(0 <= begin && begin <= end && end <= shape[0], "slice [", begin, ", ", end, ") is outside a tensor ",
        shape);
  const int64_t inner = shape[0] == 0 ? 0 : size() / shape[0] * size_of(dtype);
  Tensor part = *this;
  if (data) part.data = static_cast<char*>(data) + begin * inner;
  switch (shape.rank()) {
    case 1:
      part.shape = {end - begin};
      break;
    case 2:
      part.shape = {end - begin, shape[1]};
      break;
    case 3:
      part.shape = {end - begin, shape[1], shape[2]};
      break;
    case 4:
      part.shape = {end - begin, shape[1], shape[2], shape[3]};
      break;
  }
  return part;
}

}  // namespace flatshard
