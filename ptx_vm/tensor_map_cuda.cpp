// The CUDA driver's encoder of tensor maps, and the runtime function that returns it.

#include <cstring>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "ptx_vm/hw/tensor_map.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/state.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

static_assert(sizeof(CUtensorMap) == TensorMap::kPackedBytes);
static_assert(static_cast<int>(Element::bf16) == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
static_assert(static_cast<int>(Swizzle::bytes_128) == CU_TENSOR_MAP_SWIZZLE_128B);

std::string last_broken_rule;

// The rules of the arguments themselves; those of the map follow.
std::string broken_rule(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank,
                        const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                        CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill) {
  if (!to || reinterpret_cast<uint64_t>(to) % 64) return "the map's address is not a multiple of 64";
  if (rank < 1 || rank > TensorMap::kMaxRank) return str("rank ", rank, " is not 1 to 5");
  if (static_cast<int>(type) > CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
    return str("the PTX machine does not support data type ", static_cast<int>(type));
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
    return "the PTX machine does not support interleaved tensors";
  if (static_cast<int>(swizzle) > CU_TENSOR_MAP_SWIZZLE_128B)
    return str("the PTX machine does not support swizzle ", static_cast<int>(swizzle));
  if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return "the PTX machine supports zero fill only";
  for (uint32_t d = 0; d < rank; ++d)
    if (element_strides[d] != 1)
      return str("the PTX machine supports element stride 1 only; the stride of dimension ", d, " is ",
                 element_strides[d]);
  return "";
}

CUresult encode_tiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  last_broken_rule = broken_rule(to, type, rank, element_strides, interleave, swizzle, fill);
  if (!last_broken_rule.empty()) return CUDA_ERROR_INVALID_VALUE;
  TensorMap map{.element = static_cast<Element>(type), .rank = rank};
  map.base = reinterpret_cast<uint64_t>(address);
  map.swizzle = static_cast<Swizzle>(swizzle);
  for (uint32_t d = 0; d < rank; ++d) {
    map.extent[d] = extents[d];
    map.stride[d] = d == 0 ? bytes_of(map.element) : strides[d - 1];
    map.box[d] = box[d];
  }
  last_broken_rule = broken_rule(map);
  if (!last_broken_rule.empty()) return CUDA_ERROR_INVALID_VALUE;
  unsigned char packed[TensorMap::kPackedBytes];
  pack(map, packed);
  std::memcpy(to, packed, sizeof(packed));
  return CUDA_SUCCESS;
}

}  // namespace

const std::string& tensor_map_error() { return last_broken_rule; }

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = is_known ? reinterpret_cast<void*>(encode_tiled) : nullptr;
  if (result) *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return static_cast<cudaError_t>(outcome(cudaSuccess));
}
extern "C" cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                               cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, result);
}

}  // namespace flatshard::ptx_vm
