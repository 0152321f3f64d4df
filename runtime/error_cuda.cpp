// Errors of the CUDA runtime as text.

#include "runtime/cuda_check.h"

namespace flatshard {
namespace {

// Advice for a fault of the device: a defect of the hardware, or of a kernel.
const char* remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
      return "the hardware has failed: see nvidia-smi -q and the Xid messages in the kernel log, and use "
             "another GPU";
    case cudaErrorLaunchTimeout:
      return "the GPU also drives a display, which limits the time of a kernel: use another GPU";
    default:
      return "an earlier kernel or copy is the cause, not this call: run again with CUDA_LAUNCH_BLOCKING=1, "
             "so "
             "that the op itself reports it, or under compute-sanitizer, which names the source line; Xid "
             "messages in the kernel log tell of failing hardware";
  }
}

}  // namespace

bool is_device_fault(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

std::string describe_cuda_error(cudaError_t status, const std::string& what) {
  const std::string error = str(cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
  if (!is_device_fault(status)) return str(what, ": ", error);
  return str("the GPU has failed: ", error, ", reported by ", what, "; ", remedy(status));
}

}  // namespace flatshard
