#pragma once
// The tensors of a safetensors file in memory, for tests that change some of them and write the file again.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/dtype.h"

namespace flatshard::test {

struct TensorContent {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
};
using TensorContents = std::map<std::string, TensorContent>;  // keyed by name

TensorContents read_contents(const std::string& path);
void write_contents(const std::string& path, const TensorContents& contents);

// Removes the last entry of the first dimension.
void shorten(TensorContent& content);

}  // namespace flatshard::test
