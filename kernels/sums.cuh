#pragma once
// The layout of a warp's sums in the registers of its lanes.

#include "kernels/tensor_core.cuh"

namespace flatshard::cuda {

// A (16 kPieces, kColumns) matrix of sums, distributed over a warp as mma does: lane l holds rows l / 4 and 8
// + l / 4 of each piece of 16, and columns 2 (l % 4) and 2 (l % 4) + 1 of each 8.
template <int kPieces, int kColumns>
struct Sums {
  static constexpr int kRowsOfLane = 2 * kPieces, kColumnsOfLane = kColumns / 4;
  float at[kPieces][kColumns / 8][4];  // two columns of the first row, two of the second

  __device__ Sums() : at{} {}
  // Constructs uninitialized sums, for a product that does not add to them.
  struct Unset {};
  explicit __device__ Sums(Unset) {}

  // The sums of kCount columns from `first` on as one array, for an instruction that takes all of them.
  template <int kCount = kColumns>
  __device__ float (&flat(int first = 0))[kCount / 2] {
    static_assert(kPieces == 1);
    return reinterpret_cast<float(&)[kCount / 2]>(at[0][first / 8]);
  }

  struct Place {
    int own_row, own_column;  // index within the lane's rows and columns
    int row, column;
  };
  __device__ float& operator[](const Place& p) {
    return at[p.own_row / 2][p.own_column / 2][p.own_row % 2 * 2 + p.own_column % 2];
  }
  // Calls body(place) for each sum of this lane.
  template <class Body>
  static __device__ void for_each(Body body) {
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) body(Place{r, c, row_of(r), column_of(c)});
  }
  static __device__ int row_of(int own_row) { return own_row * 8 + threadIdx.x % kWarp / 4; }
  static __device__ int column_of(int own_column) {
    return own_column / 2 * 8 + threadIdx.x % 4 * 2 + own_column % 2;
  }
  __device__ void scale(float factor) {
    for_each([&](const Place& p) { (*this)[p] *= factor; });
  }
};

}  // namespace flatshard::cuda
