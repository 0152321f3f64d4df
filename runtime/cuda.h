#pragma once
// The CUDA runtime calls that the rest of runtime/ needs, declared without CUDA's headers and defined in the
// *_cuda.cpp files. In a build without CUDA they are not defined; callers test kCudaBuilt first.

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/device.h"

namespace flatshard::cuda {

int device_count();
std::string why_no_device();
std::string device_uuid(int index);
std::string device_name(int index);
int multiprocessors(int index);
int64_t free_bytes(int index);

// The GPU of this process. Pinned memory is allocated for it, by any thread; is_selected() says whether there
// is one.
void select_device(Device device);
bool is_selected();
void use_selected_device();  // makes it the device of the calling thread

void* create_stream(Device device, bool high_priority);
void destroy_stream(void* stream) noexcept;
void sync_stream(void* stream, const std::string& name);  // `name` is for errors
// Runs host work in stream order. An exception from it ends the program.
void run_on_host(void* stream, std::function<void()> work);

void record_event(void*& event, Device device, void* stream);  // creates the event when it is null
void destroy_event(void* event) noexcept;
void wait_event(void* stream, void* event);
// Timing events. seconds_between() blocks until the device has reached `end`.
void record_time(void*& event, Device device, void* stream);
bool has_reached(void* event);
double seconds_between(void* begin, void* end);

// Starts to capture work on this stream, and on streams that wait for it, into a graph instead of running it.
void begin_capture(void* stream);
void* end_capture(void* stream);  // the graph, ready for launch
void abandon_capture(void* stream) noexcept;
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;

void* allocate(Device device, int64_t bytes);
void release(Device device, void* data) noexcept;
void* allocate_pinned(int64_t bytes);
void release_pinned(void* data) noexcept;

void copy(void* stream, void* dst, const void* src, int64_t bytes);  // copies in any direction
void fill_bytes(void* stream, void* dst, unsigned char value, int64_t bytes);

}  // namespace flatshard::cuda
