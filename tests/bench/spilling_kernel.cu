// A kernel that spills registers: a thread holds 128 values, but its block size limits it to 64 registers.
// kernel_resources_test.cpp must find it.

namespace flatshard::test {

__global__ void __launch_bounds__(1024) spilling_kernel(float* data) {
  constexpr int kValues = 128;
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = data[i * 1024 + threadIdx.x];
  __syncthreads();  // keeps loads before it and stores after it
#pragma unroll
  for (int i = 0; i < kValues; ++i) data[i * 1024 + threadIdx.x] = values[kValues - 1 - i];
}

}  // namespace flatshard::test
