#pragma once
// The memory that a stream operation reads or writes: a copy, a memset, a matrix product.

#include <string>

#include "ptx_vm/memory.h"
#include "ptx_vm/timeline.h"

namespace flatshard::ptx_vm {

// Rows of bytes, `pitch` bytes apart.
struct Piece {
  unsigned char* data = nullptr;
  size_t pitch = 0, width = 0, height = 1;

  Allocation* home() const { return heap().find(reinterpret_cast<uint64_t>(data)); }
  bool is_on_device() const {
    const Allocation* a = home();
    return a && a->is_on_device();
  }
  size_t bytes() const { return width * height; }
  size_t extent() const { return bytes() ? pitch * (height - 1) + width : 0; }
  unsigned char* row(size_t i) const { return data + i * pitch; }
};
Piece piece_of(const void* data, size_t bytes);

std::string name_of(const Piece& p);

// Checks the memory at the call. Host memory that was not allocated through CUDA is not checked.
void check_range(const Piece& p, const char* what);
// Checks, when the operation runs, that the memory is still allocated and no unordered operation accesses it.
void touch(const Piece& p, Past& past, bool writes);

}  // namespace flatshard::ptx_vm
