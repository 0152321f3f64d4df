#pragma once
// The features that depend on the version of NCCL: windows, by which the ranks of a communicator reach one
// another's memory, the copy engines that use them, and the all-to-all. Only nccl_communicator.cpp includes
// this file.

#include <nccl.h>

#include "comm/communicator.h"
#include "runtime/check.h"

namespace flatshard {

inline void nccl_check(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) [[unlikely]]
    fail(str(what, ": ", ncclGetErrorString(status), "; ", ncclGetLastError(nullptr),
             "; NCCL_DEBUG=INFO tells more"));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
inline void prefer_copy_engines(ncclConfig_t& config) { config.CTAPolicy = NCCL_CTA_POLICY_ZERO; }

// Opens a window on this memory; null if the library or the links between these ranks do not allow it.
inline ncclWindow_t open_window(ncclComm_t comm, const Tensor& memory) {
  ncclWindow_t window = nullptr;
  const ncclResult_t status = ncclCommWindowRegister(comm, memory.data, static_cast<size_t>(memory.bytes()),
                                                     &window, NCCL_WIN_COLL_SYMMETRIC);
  return status == ncclSuccess ? window : nullptr;
}
inline void close_window(ncclComm_t comm, ncclWindow_t window) noexcept {
  ncclCommWindowDeregister(comm, window);
}

inline void all_to_all(const Tensor& received, const Tensor& sent, ncclComm_t comm, int size,
                       cudaStream_t on) {
  const size_t part = static_cast<size_t>(sent.bytes()) / static_cast<size_t>(size);
  nccl_check(ncclAlltoAll(sent.data, received.data, part, ncclUint8, comm, on), "ncclAlltoAll");
}
#else
using ncclWindow_t = void*;
inline void prefer_copy_engines(ncclConfig_t&) {}
inline ncclWindow_t open_window(ncclComm_t, const Tensor&) { return nullptr; }
inline void close_window(ncclComm_t, ncclWindow_t) noexcept {}

inline void all_to_all(const Tensor& received, const Tensor& sent, ncclComm_t comm, int size,
                       cudaStream_t on) {
  for (int peer = 0; peer < size; ++peer) {
    const Tensor out = part_of(sent, peer, size), in = part_of(received, peer, size);
    const size_t bytes = static_cast<size_t>(out.bytes());
    nccl_check(ncclSend(out.data, bytes, ncclUint8, peer, comm, on), "ncclSend");
    nccl_check(ncclRecv(in.data, bytes, ncclUint8, peer, comm, on), "ncclRecv");
  }
}
#endif

}  // namespace flatshard
