#include <cuda_runtime_api.h>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/tests/run_ptx.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {

namespace {

std::string count_up() {
  std::string bytes = "0";
  for (int i = 1; i < 256; ++i) bytes += str(", ", i);
  return bytes;
}

}  // namespace

std::vector<uint64_t> run_ptx(const std::string& body, uint32_t threads, const std::string& functions,
                              int arch) {
  Options now = options();
  now.arch = arch;
  const ScopedOptions scope(now);
  const void* stub = register_ptx(str(R"(
.version 8.0
.target )",
                                      arch == 80 ? "sm_80" : "sm_90a", R"(
.address_size 64
)",
                                      functions, R"(.visible .entry test(.param .u64 out) .maxntid )",
                                      threads, R"(, 1, 1 .minnctapersm 1 {
  .reg .b16 %rs<32>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .f32 %f<32>; .reg .f64 %fd<32>; .reg .pred %p<32>;
  .shared .align 16 .b8 tile[1024];
  mov.u32 %r30, %tid.x;
  mov.u32 %r0, 0;
  mov.u64 %rd0, 0;
)",
                                      body, R"(
  ld.param.u64 %rd30, [out];
  mul.wide.u32 %rd31, %r30, 8;
  add.s64 %rd30, %rd30, %rd31;
  cvt.u64.u32 %rd31, %r0;
  or.b64 %rd0, %rd0, %rd31;
  st.global.u64 [%rd30], %rd0;
  ret;
}
.global .align 16 .b8 source[256] = {)",
                                      count_up(), "};"));
  void* out = nullptr;
  std::vector<uint64_t> results(threads);
  const size_t bytes = threads * sizeof(uint64_t);
  void* arguments[] = {&out};
  cudaError_t status = cudaMalloc(&out, bytes);
  if (status == cudaSuccess) status = cudaLaunchKernel(stub, dim3(1), dim3(threads), arguments, 0, nullptr);
  if (status == cudaSuccess) status = cudaMemcpy(results.data(), out, bytes, cudaMemcpyDeviceToHost);
  cudaFree(out);
  cudaGetLastError();  // it is thrown here, and must not come up again at the next launch
  check(status == cudaSuccess, "launch: ", cudaGetErrorString(status));
  return results;
}

}  // namespace flatshard::ptx_vm
