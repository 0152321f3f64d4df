#include <cassert>
#include <cmath>
#include <cstdio>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ptx_vm/tests/language.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kThreads = 64;

__constant__ float factors[4];
__device__ float offset_of_all = 0.5f;

__global__ void local_arrays(float* y) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[i] = static_cast<float>(i * threadIdx.x);
  int at = threadIdx.x % 8;
  for (int i = 0; i < 3; ++i) at = (at + static_cast<int>(values[at])) % 8;  // not known to the compiler
  y[threadIdx.x] = values[at];
}

__global__ void dynamic_shared(float* y, int n) {
  extern __shared__ float tile[];
  for (int i = threadIdx.x; i < n; i += kThreads) tile[i] = static_cast<float>(i);
  __syncthreads();
  y[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

__global__ void variables(float* y) { y[threadIdx.x] = factors[threadIdx.x % 4] + offset_of_all; }

struct Table {
  float value[6];
  short step;
};
__global__ void parameter_array(float* y, const Table t) {
  y[threadIdx.x] = t.value[threadIdx.x * t.step % 6];
}

__global__ void three_dimensions(float* y) {
  const int i = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  y[i] = static_cast<float>(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z);
}

template <class F>
__global__ void mapped(float* y, F f) {
  y[threadIdx.x] = f(0.25f * static_cast<float>(threadIdx.x) - 7.0f);
}

__global__ void half_pairs(float* y) {
  const float x = 0.125f * static_cast<float>(threadIdx.x);
  const __nv_bfloat162 b = __hfma2(__floats2bfloat162_rn(x, x + 1.0f), __floats2bfloat162_rn(2.0f, 2.0f),
                                   __floats2bfloat162_rn(1.0f, 1.0f));
  const __half2 h = __hadd2(__floats2half2_rn(x, 1.0f), __floats2half2_rn(1.0f, x));
  y[threadIdx.x] = __low2float(b) + __high2float(b) + __low2float(h) + __high2float(h);
}

__global__ void counted(float* y) {
  const int many = __syncthreads_count(threadIdx.x % 3 == 0);
  const bool any = __syncthreads_or(threadIdx.x == 5), all = __syncthreads_and(threadIdx.x < 5);
  y[threadIdx.x] = static_cast<float>(many + (any ? 100 : 0) + (all ? 1000 : 0));
}

__global__ void asserting(const float* x) { assert(x == nullptr && "not this time"); }

struct Polynomial {
  float factor[5];
  int degree;
};
__device__ __noinline__ float power(float x, int n) {
  float y = 1.0f;
  for (int i = 0; i < n; ++i) y *= x;
  return y;
}
__device__ __noinline__ Polynomial derivative(Polynomial p, int times) {
  for (; times > 0 && p.degree > 0; --times, --p.degree)
    for (int i = 0; i < p.degree; ++i) p.factor[i] = p.factor[i + 1] * static_cast<float>(i + 1);
  return p;
}
// Its array is one for all its calls.
__device__ __noinline__ float of_next_thread(float x) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = x;
  __syncthreads();
  const float next = tile[(threadIdx.x + 1) % kThreads];
  __syncthreads();
  return next;
}
__global__ void functions_with_shared(float* y) {
  const float next = of_next_thread(static_cast<float>(threadIdx.x));
  y[threadIdx.x] = next + 100.0f * of_next_thread(next);
}

__device__ __noinline__ float value_of(const Polynomial& p, float x) {
  if (p.degree == 0) return p.factor[0];
  float y = 0.0f;
  for (int i = 0; i <= p.degree; ++i) y += p.factor[i] * power(x, i);
  return y;
}
// 1 + x + x^2 + x^3 + x^4, and its derivatives
__global__ void device_functions(float* y) {
  const Polynomial p = derivative({{1, 1, 1, 1, 1}, 4}, threadIdx.x % 5);
  float result = 0.0f;
  if (threadIdx.x % 3 != 0) result = value_of(p, 2.0f);
  y[threadIdx.x] = result;
}

__global__ void printing() {
  const int lane = threadIdx.x;
  printf("lane %d: %*.2f|%-6s|%lld|%c|%08x|%3d%%\n", lane, 5, 0.25 * lane, "text", (1LL << 40) + lane,
         'a' + lane, 255 - lane, lane);
}

__device__ __noinline__ void stop_if(bool stops) {
  if (stops) __trap();
}
__global__ void stopping() { stop_if(threadIdx.x == 3); }

// come[0] counts the blocks that have come; then every block sees what all have written.
__global__ void grid_barrier(int* seen, int* come, int* written) {
  written[blockIdx.x] = 1;
  __threadfence();
  atomicAdd(come, 1);
  while (atomicAdd(come, 0) != gridDim.x) __nanosleep(20);
  __threadfence();
  int sum = 0;
  for (int b = 0; b < gridDim.x; ++b) sum += written[b];
  seen[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(256) bounded(float* y) {
  __shared__ float tile[25];
  tile[threadIdx.x % 25] = y[0];
  __syncthreads();
  y[0] = tile[3];
}

template <class Launch>
std::vector<float> results_of(Launch&& launch) {
  float* y = nullptr;
  std::vector<float> values(kThreads);
  cudaMalloc(&y, kThreads * sizeof(float));
  launch(y);
  if (cudaMemcpy(values.data(), y, kThreads * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess)
    values.clear();
  cudaFree(y);
  return values;
}

template <class F>
std::vector<float> expected_of(F&& f) {
  std::vector<float> values(kThreads);
  for (int i = 0; i < kThreads; ++i) values[i] = f(i);
  return values;
}

struct ExpF {
  __host__ __device__ float operator()(float x) const { return expf(x); }
};
struct LogF {
  __host__ __device__ float operator()(float x) const { return logf(x * x + 0.5f); }
};
struct SinCosF {
  __host__ __device__ float operator()(float x) const { return sinf(x) + 2.0f * cosf(1000.0f * x) + 5.0f; }
};
struct TanhF {
  __host__ __device__ float operator()(float x) const { return tanhf(x) + 2.0f; }
};
struct PowF {
  __host__ __device__ float operator()(float x) const { return powf(fabsf(x) + 0.1f, 1.7f); }
};
struct ErfF {
  __host__ __device__ float operator()(float x) const { return erff(x) + 2.0f; }
};

template <class F>
LanguageCase mapped_case(const char* name, F f) {
  constexpr float kTolerance = 1e-5f;  // of the GPU's own functions, some units in the last place
  return {name, results_of([&](float* y) { mapped<<<1, kThreads>>>(y, f); }),
          expected_of([&](int i) { return f(0.25f * static_cast<float>(i) - 7.0f); }), kTolerance};
}

}  // namespace

std::vector<LanguageCase> run_language_cases() {
  const float host_factors[4] = {1, 2, 3, 4};
  cudaMemcpyToSymbol(factors, host_factors, 2 * sizeof(float));
  cudaMemcpyToSymbolAsync(factors, host_factors + 2, 2 * sizeof(float), 2 * sizeof(float),
                          cudaMemcpyHostToDevice, cudaStreamLegacy);
  const Table table{{0, 1, 4, 9, 16, 25}, 5};
  return {
      {"local_arrays", results_of([](float* y) { local_arrays<<<1, kThreads>>>(y); }), expected_of([](int t) {
         int at = t % 8;
         for (int i = 0; i < 3; ++i) at = (at + at * t) % 8;
         return static_cast<float>(at * t);
       })},
      {"dynamic_shared", results_of([](float* y) { dynamic_shared<<<1, kThreads, 400>>>(y, 100); }),
       expected_of([](int t) { return 99.0f - t; })},
      {"variables", results_of([](float* y) { variables<<<1, kThreads>>>(y); }),
       expected_of([](int t) { return t % 4 + 1.5f; })},
      {"parameter_array", results_of([&](float* y) { parameter_array<<<1, kThreads>>>(y, table); }),
       expected_of([&](int t) { return table.value[t * 5 % 6]; })},
      {"three_dimensions", results_of([](float* y) { three_dimensions<<<1, dim3(4, 8, 2)>>>(y); }),
       expected_of([](int t) { return t % 4 + 10.0f * (t / 4 % 8) + 100.0f * (t / 32); })},
      {"half_pairs", results_of([](float* y) { half_pairs<<<1, kThreads>>>(y); }), expected_of([](int t) {
         const float x = 0.125f * t, a = 2 * x + 1, b = 2 * x + 3;
         return __bfloat162float(__float2bfloat16_rn(a)) + __bfloat162float(__float2bfloat16_rn(b)) +
                2 * (x + 1);
       })},
      {"counted", results_of([](float* y) { counted<<<1, kThreads>>>(y); }),
       expected_of([](int) { return 122.0f; })},
      {"device_functions", results_of([](float* y) { device_functions<<<1, kThreads>>>(y); }),
       expected_of([](int t) {
         const float derivatives[] = {31, 49, 62, 54, 24};  // at 2
         return t % 3 != 0 ? derivatives[t % 5] : 0.0f;
       })},
      {"functions_with_shared", results_of([](float* y) { functions_with_shared<<<1, kThreads>>>(y); }),
       expected_of([](int t) { return (t + 1) % kThreads + 100.0f * ((t + 2) % kThreads); })},
      mapped_case("expf", ExpF{}),
      mapped_case("logf", LogF{}),
      mapped_case("sinf and cosf", SinCosF{}),
      mapped_case("tanhf", TanhF{}),
      mapped_case("powf", PowF{}),
      mapped_case("erff", ErfF{}),
  };
}

int run_grid_barrier(int blocks, bool is_cooperative, std::vector<int>* seen) {
  int *data = nullptr, *come = nullptr, *written = nullptr;
  cudaMalloc(&data, blocks * sizeof(int));
  cudaMalloc(&written, blocks * sizeof(int));
  cudaMalloc(&come, sizeof(int));
  cudaMemset(come, 0, sizeof(int));
  void* arguments[] = {&data, &come, &written};
  cudaError_t status = is_cooperative ? cudaLaunchCooperativeKernel(grid_barrier, blocks, 1, arguments)
                                      : cudaLaunchKernel(grid_barrier, blocks, 1, arguments);
  seen->resize(blocks);
  if (status == cudaSuccess)
    status = cudaMemcpy(seen->data(), data, blocks * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(data);
  cudaFree(written);
  cudaFree(come);
  return status;
}

const void* stub_of_bounded() { return reinterpret_cast<const void*>(bounded); }

void run_printing() {
  printing<<<1, 3>>>();
  cudaDeviceSynchronize();
}

void run_failing_function() {
  stopping<<<1, 32>>>();
  cudaDeviceSynchronize();
}

void run_failing_assertion() {
  float* x = nullptr;
  cudaMalloc(&x, 4);
  asserting<<<1, 1>>>(x);
  cudaFree(x);
}

}  // namespace flatshard::ptx_vm
