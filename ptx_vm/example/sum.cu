// The sum of 256 numbers, by a kernel with an error: its last steps rely on the lanes of a warp to advance
// together, which nothing guarantees since Volta. `sum fixed` runs the correct kernel.

#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

constexpr int kThreads = 256;

template <bool kFixed>
__global__ void sum(float* y, const float* x) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = x[threadIdx.x];
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (kFixed || half >= 32) __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *y = part[0];
}

int main(int argc, char** argv) {
  float numbers[kThreads], result = 0;
  for (int i = 0; i < kThreads; ++i) numbers[i] = static_cast<float>(i % 10);
  float *x = nullptr, *y = nullptr;
  cudaMalloc(&x, sizeof(numbers));
  cudaMalloc(&y, sizeof(result));
  cudaMemcpy(x, numbers, sizeof(numbers), cudaMemcpyHostToDevice);
  const bool fixed = argc > 1 && std::strcmp(argv[1], "fixed") == 0;
  (fixed ? sum<true> : sum<false>)<<<1, kThreads>>>(y, x);
  const cudaError_t status = cudaMemcpy(&result, y, sizeof(result), cudaMemcpyDeviceToHost);
  if (status != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
    return 1;
  }
  std::printf("the sum is %g\n", result);
}
