#pragma once
// The few CUDA runtime calls the rest of runtime needs, without CUDA's headers. Defined in the *_cuda.cpp
// files; a build without CUDA has none of them, and reaches none (kCudaBuilt).

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/device.h"

namespace flatshard::cuda {

int device_count();
std::string why_no_device();

void* create_stream(Device device, bool high_priority);
void destroy_stream(void* stream) noexcept;
void sync_stream(void* stream);
// Runs host work when its turn comes in the stream; what it throws ends the program.
void run_on_host(void* stream, std::function<void()> work);

void record_event(void*& event, Device device, void* stream);  // creates the event when it is null
void destroy_event(void* event) noexcept;
void wait_event(void* stream, void* event);
// Events that keep the time at which the device reaches them; the second waits until it has.
void record_time(void*& event, Device device, void* stream);
double seconds_between(void* begin, void* end);

// All that the stream, and those that wait for it, are given from now on becomes a graph, in place of
// running.
void begin_capture(void* stream);
void* end_capture(void* stream);  // the graph, ready to be launched
void abandon_capture(void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

void* allocate(Device device, int64_t bytes);
void release(Device device, void* data) noexcept;
void* allocate_pinned(int64_t bytes);
void release_pinned(void* data) noexcept;

void copy(void* stream, void* dst, const void* src, int64_t bytes);  // any direction
void zero(void* stream, void* dst, int64_t bytes);

}  // namespace flatshard::cuda
