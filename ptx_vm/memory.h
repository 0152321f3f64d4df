#pragma once
// Memory that kernels can access: all allocations with their bounds and lifetimes, and for each byte whether
// it was ever written. A freed allocation stays in quarantine, so that a report of a late access can name it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ptx_vm/race.h"

namespace flatshard::ptx_vm {

inline constexpr uint64_t kWholeBytes = 4096;
inline constexpr unsigned char kIsWhole = 0xff;

// kGap: a byte between two variables. kInFlight: an asynchronous copy will write it. kMbarrier: a byte of a
// live mbarrier.
enum ByteState : unsigned char { kUnwritten = 0, kWritten = 1, kGap = 2, kInFlight = 4, kMbarrier = 8 };

struct Allocation {
  enum class Kind { device, pinned, registered, variable };
  Kind kind;
  std::string name;
  uint64_t begin, bytes;
  bool is_live = true;
  // The mark of a stream-ordered allocation; 0: it was allocated at the call.
  static constexpr Mark kNotYet = ~Mark{0};
  Mark made_by = 0;
  std::vector<unsigned char> state;  // ByteState of every byte
  // One byte for each kWholeBytes: kIsWhole if all of them are known to be written, so that `state` need not
  // be read again; otherwise the number of tests so far.
  std::vector<unsigned char> whole;
  RaceShadow races;
  std::unique_ptr<unsigned char[]> storage;  // includes red zones; null for registered memory

  uint64_t end() const { return begin + bytes; }
  bool is_on_device() const { return kind == Kind::device || kind == Kind::variable; }
  // The offset in `races`, whose cells begin at multiples of 16.
  uint64_t shadow_offset(uint64_t address) const { return address - begin + (begin & 15); }
  bool contains(uint64_t address) const { return address - begin < bytes; }
};

class Heap {
 public:
  // Allocates memory. Device memory is filled with 0xff in the state unwritten, other memory with zeros in
  // the state written.
  void* allocate(Allocation::Kind kind, uint64_t bytes, std::string name = "");
  void add_registered(void* data, uint64_t bytes);
  bool release(void* data);  // returns false if no live allocation begins there
  // Returns the allocation that contains this address, live or freed; null if there is none.
  Allocation* find(uint64_t address);
  // The same, but also returns the allocation whose red zone contains the address.
  Allocation* nearest(uint64_t address);
  // Marks bytes as written by the host, or copies their states. Bytes outside of allocations are ignored.
  void mark_written(const void* data, uint64_t bytes);
  void copy_marks(const void* to, const void* from, uint64_t bytes);
  uint64_t live_bytes() const { return live_bytes_; }

 private:
  Allocation& insert(Allocation allocation);
  void forget_old();

  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;  // keyed by first address
  std::vector<uint64_t> freed_;                                  // sorted by time of release
  uint64_t live_bytes_ = 0, freed_bytes_ = 0;
  int made_ = 0;
};

Heap& heap();

// Generic addresses of memory that is not global.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 56, kLocalWindow = uint64_t{1} << 57,
                          kParamWindow = uint64_t{1} << 58, kWindowMask = uint64_t{0xff} << 56;
inline constexpr uint64_t kSharedBase = 0x400, kLocalBase = 0x10;  // nonzero, so that no object has address 0

}  // namespace flatshard::ptx_vm
