// The CUDA runtime on the machine: device, errors, options.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unistd.h>
#include <utility>

#include <cuda_runtime_api.h>

#include "ptx_vm/device.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr size_t kCapacity = size_t{16} << 30;

constexpr const char* kOrderNames[] = {"in_order", "comm_late", "comm_early", "random"};

bool is_told = false;  // whether the program has asked for the text of the findings

// For programs that check no errors.
void print_untold();

std::vector<Finding>& found() {
  static auto* const all = [] {
    std::atexit(print_untold);
    return new std::vector<Finding>;
  }();
  return *all;
}

void print_untold() {
  if (is_told) return;
  for (const Finding& finding : found()) std::fprintf(stderr, "%s\n", finding.text.c_str());
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Of this thread, as in CUDA; that of every thread while there are findings.
struct LastError {
  int code = cudaSuccess;
  std::string text{};
};
LastError& last() {
  thread_local auto* const own = new LastError;
  return *own;
}

Options options_of_environment() {
  Options o;
  if (const char* seed = std::getenv("PTX_VM_SEED")) o.seed = std::strtoull(seed, nullptr, 10);
  if (const char* resident = std::getenv("PTX_VM_RESIDENT"))
    o.resident_blocks = static_cast<uint32_t>(std::strtoul(resident, nullptr, 10));
  if (const char* name = std::getenv("PTX_VM_SCHED")) {
    const std::string schedule = name;
    if (schedule == "in_order")
      o.schedule = Schedule::in_order;
    else if (schedule == "reverse")
      o.schedule = Schedule::reverse;
    else if (schedule == "random")
      o.schedule = Schedule::random;
    else
      check(schedule == "round_robin", "PTX_VM_SCHED=", schedule,
            ": in_order, reverse, round_robin or random");
  }
  if (const char* name = std::getenv("PTX_VM_ORDER")) {
    const auto found = std::find(std::begin(kOrderNames), std::end(kOrderNames), std::string_view(name));
    check(found != std::end(kOrderNames), "PTX_VM_ORDER=", name,
          ": in_order, comm_late, comm_early or random");
    o.stream_order = static_cast<WorkOrder>(found - std::begin(kOrderNames));
  }
  if (const char* name = std::getenv("PTX_VM_ASYNC")) {
    const std::string timing = name;
    if (timing == "early")
      o.async = AsyncTiming::early;
    else if (timing == "late")
      o.async = AsyncTiming::late;
    else
      check(timing == "random", "PTX_VM_ASYNC=", timing, ": early, late or random");
  }
  if (const char* shift = std::getenv("PTX_VM_SHIFT")) {
    o.shared_shift = static_cast<uint32_t>(std::atoi(shift));
    check(o.shared_shift % 16 == 0, "PTX_VM_SHIFT=", shift, ": a multiple of 16");
  }
  if (const char* sums = std::getenv("PTX_VM_MMA")) {
    o.pairwise_mma = std::strcmp(sums, "pairs") == 0;
    check(o.pairwise_mma || std::strcmp(sums, "in_order") == 0, "PTX_VM_MMA=", sums, ": in_order or pairs");
  }
  if (const char* arch = std::getenv("PTX_VM_ARCH")) {
    o.arch = std::atoi(arch);
    check(o.arch == 80 || o.arch == 90, "PTX_VM_ARCH=", arch, ": 80 or 90");
  }
  if (const char* names = std::getenv("PTX_VM_FLOAT_ATOMICS")) o.may_add_floats = split_at_commas(names);
  return o;
}

}  // namespace

const Architecture& architecture() {
  static constexpr Architecture kOlder{"PTX VM sm_80", 8, 167936, 166912};
  static constexpr Architecture kNewer{"PTX VM sm_90a", 9, 233472, 232448};
  return options().arch == 80 ? kOlder : kNewer;
}

Options& options() {
  static Options* const only = new Options(options_of_environment());
  return *only;
}

std::string describe(const Options& o) {
  const char* name = o.schedule == Schedule::in_order      ? "in_order"
                     : o.schedule == Schedule::reverse     ? "reverse"
                     : o.schedule == Schedule::round_robin ? "round_robin"
                                                           : "random";
  std::string floats;
  for (const std::string& kernel : o.may_add_floats) floats += (floats.empty() ? "" : ",") + kernel;
  const char* async = o.async == AsyncTiming::early  ? "early"
                      : o.async == AsyncTiming::late ? "late"
                                                     : "random";
  return str("PTX_VM_SCHED=", name, " PTX_VM_SEED=", o.seed, " PTX_VM_RESIDENT=", o.resident_blocks,
             " PTX_VM_ASYNC=", async, " PTX_VM_ORDER=", kOrderNames[static_cast<int>(o.stream_order)],
             " PTX_VM_ARCH=", o.arch, o.shared_shift ? str(" PTX_VM_SHIFT=", o.shared_shift) : "",
             o.pairwise_mma ? " PTX_VM_MMA=pairs" : "",
             floats.empty() ? "" : " PTX_VM_FLOAT_ATOMICS='" + floats + "'");
}

Counters& counters() {
  static Counters all;
  return all;
}

uint64_t& product_ticks() {
  static uint64_t all = 0;
  return all;
}

void add_finding(Finding finding) {
  streams().drop_all();
  found().push_back(std::move(finding));
}

const std::vector<Finding>& findings() { return found(); }

std::vector<Finding> take_findings() {
  if (!found().empty()) last() = {};
  is_told = false;
  return std::exchange(found(), {});
}

void forget_last_error() { last() = {}; }

int outcome(int code, const std::string& text) {
  if (!found().empty()) return cudaErrorIllegalAddress;
  if (code != cudaSuccess) last() = {code, text};
  return code;
}

int last_error(bool reset) {
  if (!found().empty()) return cudaErrorIllegalAddress;
  return reset ? std::exchange(last().code, cudaSuccess) : last().code;
}

const std::string& last_error_text() {
  if (found().empty()) return last().text;
  is_told = true;
  return found().back().text;
}

int guarded(void (*work)(void*), void* data) {
  if (streams().is_host_thread() && streams().runs_host_function())
    return outcome(cudaErrorNotPermitted, "a host function on a stream calls CUDA");
  // The watchdog's thread may ask for events; apart from that there is one host thread.
  static std::recursive_mutex mutex;
  const std::lock_guard lock(mutex);
  if (!found().empty()) return cudaErrorIllegalAddress;
  try {
    work(data);
    return cudaSuccess;
  } catch (Finding& finding) {
    add_finding(std::move(finding));
    return cudaErrorIllegalAddress;
  } catch (const CallError& error) {
    return outcome(error.code, error.what());
  } catch (const Error& error) {
    return outcome(cudaErrorInvalidValue, error.what());
  }
}

namespace {

constexpr int kMaxGridX = 0x7fffffff, kConstBytes = 65536, kCacheBytes = 60 << 20;

// Each with its field of cudaDeviceProp, where that is an int.
struct Attribute {
  cudaDeviceAttr id;
  int value;
  int cudaDeviceProp::*field = nullptr;
};
std::vector<Attribute> attributes() {
  const Architecture& a = architecture();
  return {
      {cudaDevAttrMaxThreadsPerBlock, kMaxThreads, &cudaDeviceProp::maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, kMaxThreads},
      {cudaDevAttrMaxBlockDimY, kMaxThreads},
      {cudaDevAttrMaxBlockDimZ, kMaxBlockZ},
      {cudaDevAttrMaxGridDimX, kMaxGridX},
      {cudaDevAttrMaxGridDimY, kMaxGridYZ},
      {cudaDevAttrMaxGridDimZ, kMaxGridYZ},
      {cudaDevAttrMaxSharedMemoryPerBlock, kSharedPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(a.shared_opt_in)},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, static_cast<int>(a.shared_per_processor)},
      {cudaDevAttrReservedSharedMemoryPerBlock, kSharedReserved},
      {cudaDevAttrTotalConstantMemory, kConstBytes},
      {cudaDevAttrWarpSize, 32, &cudaDeviceProp::warpSize},
      {cudaDevAttrMaxRegistersPerBlock, kRegisters, &cudaDeviceProp::regsPerBlock},
      {cudaDevAttrMaxRegistersPerMultiprocessor, kRegisters, &cudaDeviceProp::regsPerMultiprocessor},
      {cudaDevAttrMultiProcessorCount, kProcessors, &cudaDeviceProp::multiProcessorCount},
      {cudaDevAttrMaxThreadsPerMultiProcessor, kThreadsPerProcessor,
       &cudaDeviceProp::maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksPerProcessor,
       &cudaDeviceProp::maxBlocksPerMultiProcessor},
      {cudaDevAttrL2CacheSize, kCacheBytes, &cudaDeviceProp::l2CacheSize},
      {cudaDevAttrComputeCapabilityMajor, a.major, &cudaDeviceProp::major},
      {cudaDevAttrComputeCapabilityMinor, 0, &cudaDeviceProp::minor},
      {cudaDevAttrConcurrentKernels, 1, &cudaDeviceProp::concurrentKernels},
      {cudaDevAttrAsyncEngineCount, 3, &cudaDeviceProp::asyncEngineCount},
      {cudaDevAttrUnifiedAddressing, 1, &cudaDeviceProp::unifiedAddressing},
      {cudaDevAttrCanMapHostMemory, 1, &cudaDeviceProp::canMapHostMemory},
      {cudaDevAttrStreamPrioritiesSupported, 1, &cudaDeviceProp::streamPrioritiesSupported},
      {cudaDevAttrCooperativeLaunch, 1, &cudaDeviceProp::cooperativeLaunch},
      {cudaDevAttrHostRegisterSupported, 1, &cudaDeviceProp::hostRegisterSupported},
      {cudaDevAttrMemoryPoolsSupported, 1, &cudaDeviceProp::memoryPoolsSupported},
      {cudaDevAttrManagedMemory, 0, &cudaDeviceProp::managedMemory},
      {cudaDevAttrPageableMemoryAccess, 0, &cudaDeviceProp::pageableMemoryAccess},
  };
}

std::map<cudaLimit, size_t>& limits() {
  static auto* const all = new std::map<cudaLimit, size_t>{
      {cudaLimitStackSize, 1024}, {cudaLimitPrintfFifoSize, 8 << 20}, {cudaLimitMallocHeapSize, 8 << 20}};
  return *all;
}

cudaError_t done(cudaError_t code = cudaSuccess, const std::string& text = "") {
  return static_cast<cudaError_t>(outcome(code, text));
}
}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;  // even after a finding: the device exists, and later calls report the reason
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return done();
}
cudaError_t cudaSetDevice(int device) { return done(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return done(cudaErrorInvalidDevice, str("there is no device ", device));
  *p = {};
  // All processes are on one GPU, unless each is to have its own.
  const int identity = std::getenv("PTX_VM_OWN_GPU") ? getpid() : 0;
  std::memcpy(p->uuid.bytes, &identity, sizeof(identity));
  std::strncpy(p->name, architecture().name, sizeof(p->name) - 1);
  p->totalGlobalMem = kCapacity;
  for (const auto& [attribute, value, field] : attributes())
    if (field) p->*field = value;
  p->sharedMemPerBlock = kSharedPerBlock;
  p->sharedMemPerBlockOptin = architecture().shared_opt_in;
  p->sharedMemPerMultiprocessor = architecture().shared_per_processor;
  p->reservedSharedMemPerBlock = kSharedReserved;
  p->totalConstMem = kConstBytes;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = kMaxThreads;
  p->maxThreadsDim[2] = kMaxBlockZ;
  p->maxGridSize[0] = kMaxGridX;
  p->maxGridSize[1] = p->maxGridSize[2] = kMaxGridYZ;
  return done();
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return done(cudaErrorInvalidDevice, str("there is no device ", device));
  for (const Attribute& a : attributes())
    if (a.id == attribute) {
      *value = a.value;
      return done();
    }
  return done(cudaErrorInvalidValue,
              str("the PTX machine does not support device attribute ", int{attribute}));
}

// Requests that the machine may ignore: its stacks and buffers grow as needed.
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  if (!limits().contains(limit)) return done(cudaErrorUnsupportedLimit, str("limit ", int{limit}));
  limits()[limit] = value;
  return done();
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  if (!limits().contains(limit)) return done(cudaErrorUnsupportedLimit, str("limit ", int{limit}));
  *value = limits()[limit];
  return done();
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = kCapacity;
  *free_bytes = kCapacity - std::min(kCapacity, static_cast<size_t>(heap().live_bytes()));
  return done();
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return done();
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return done();
}
}

}  // namespace flatshard::ptx_vm
