#include "runtime/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "runtime/check.h"
#include "runtime/input_file.h"

namespace flatshard {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const InputFile file(path);
  const size_t size = static_cast<size_t>(file.size());
  void* data = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0) : nullptr;
  check(data != MAP_FAILED, path, ": cannot map: ", std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace flatshard
