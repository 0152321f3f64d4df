// The CUDA runtime on the machine: memory.

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/report.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

bool has_room(size_t bytes) {
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  return bytes <= free_bytes;
}

void* allocate_on_device(size_t bytes) {
  if (!has_room(bytes)) streams().finish_all();  // some may be freed in stream order
  if (!has_room(bytes)) throw CallError(cudaErrorMemoryAllocation, "out of memory");
  return bytes ? heap().allocate(Allocation::Kind::device, bytes) : nullptr;
}

// Frees once all streams are done with it.
cudaError_t release(void* data, const char* call) {
  return attempt([&] {
    if (!data) return;
    refuse_memory_call(call);
    streams().finish_all();
    check(heap().release(data), "memory to be freed is not allocated");
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = nullptr;
  return attempt([&] {
    refuse_memory_call("cudaMalloc");
    *data = allocate_on_device(bytes);
  });
}
cudaError_t cudaFree(void* data) { return release(data, "cudaFree"); }

// The address is known at the call; the memory exists once the stream reaches the allocation.
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  *data = nullptr;
  return attempt([&] {
    Queue& queue = queue_of(stream);
    *data = allocate_on_device(bytes);
    Allocation* made = bytes ? heap().find(reinterpret_cast<uint64_t>(*data)) : nullptr;
    if (!made) return;
    made->made_by = Allocation::kNotYet;
    streams().enqueue(queue, str("allocation of ", made->name),
                      [made](Activity& self) { made->made_by = timeline().begin(self).first_mark; });
  });
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return attempt([&] {
    Queue& queue = queue_of(stream);
    if (!data) return;
    const auto address = reinterpret_cast<uint64_t>(data);
    const Allocation* a = heap().find(address);
    check(a && a->is_live && a->begin == address, "memory to be freed is not allocated");
    streams().enqueue(queue, "freeing of " + a->name, [=](Activity& self) {
      Past past(timeline().begin(self));
      Allocation* freed = heap().find(address);
      if (!freed || !freed->is_live)
        report_operation(FindingKind::use_after_free, self.what, "the memory has already been freed");
      if (options().finds_races) freed->races.end(past, address);
      heap().release(data);
    });
  });
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return attempt([&] {
    refuse_memory_call("cudaMallocHost");
    *data = heap().allocate(Allocation::Kind::pinned, bytes);
  });
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return cudaMallocHost(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return release(data, "cudaFreeHost"); }
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return attempt([&] {
    refuse_memory_call("cudaHostRegister");
    heap().add_registered(data, bytes);
  });
}
cudaError_t cudaHostUnregister(void* data) { return release(data, "cudaHostUnregister"); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return attempt([&] { *device = host; });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return attempt([&] {
    *attributes = {};
    const Allocation* a = heap().find(reinterpret_cast<uint64_t>(data));
    const bool is_device = a && a->is_on_device();
    attributes->type = !a          ? cudaMemoryTypeUnregistered
                       : is_device ? cudaMemoryTypeDevice
                                   : cudaMemoryTypeHost;
    if (a) attributes->devicePointer = const_cast<void*>(data);
    if (!is_device) attributes->hostPointer = const_cast<void*>(data);
  });
}

cudaError_t cudaGetSymbolAddress(void** data, const void* symbol) {
  return attempt([&] {
    uint64_t bytes = 0;
    *data = variable_of(symbol, &bytes);
    check(*data != nullptr, "no device variable is registered at this address");
  });
}
}

}  // namespace flatshard::ptx_vm
